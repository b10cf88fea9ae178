// Search by name and totals by name: what is counted over the slices, without a canvas.
import { first_ending_after, type Row, type Timeline } from './decode';

export interface Found {
  count: number;
  names: number;
  /** Slices by row, in the order of rows; rows without any have an empty list. */
  by_row: Map<Row, Uint32Array>;
}

/** Whether a name is meant: by substring, any case, or by a regular expression between slashes. Null: no such expression. */
export function matcher(words: string): ((name: string) => boolean) | null {
  const expression = /^\/(.+)\/([imsu]*)$/.exec(words);
  if (expression) {
    try {
      const pattern = new RegExp(expression[1]!, expression[2]!);
      return (name) => pattern.test(name);
    } catch {
      return null;
    }
  }
  const lower = words.toLowerCase();
  return (name) => name.toLowerCase().includes(lower);
}

/** Every slice of the recording whose name is meant. Names are few, so each is looked at once. */
export function find(timeline: Timeline, meant: (name: string) => boolean): Found {
  const hits = new Uint8Array(timeline.texts.length);
  let names = 0;
  timeline.texts.forEach((text, number) => {
    if (number > 0 && meant(text)) hits[number] = 1;
  });
  const used = new Uint8Array(timeline.texts.length);
  const by_row = new Map<Row, Uint32Array>();
  let count = 0;
  for (const track of timeline.tracks) {
    for (const row of track.rows) {
      const found = new Uint32Array(row.ids.length);
      let at = 0;
      for (const id of row.ids) {
        const name = timeline.name[id]!;
        if (hits[name] === 0) continue;
        found[at++] = id;
        used[name] = 1;
      }
      by_row.set(row, found.slice(0, at));
      count += at;
    }
  }
  for (const one of used) names += one;
  return { count, names, by_row };
}

/** The next of what was found behind the slice `from` (or before it), by start, then by number; around the ends. */
export function step_found(timeline: Timeline, found: Found, from: number, forward: boolean): number {
  const key = (id: number): number => timeline.start[id]!;
  const before = (a: number, b: number): boolean => key(a) < key(b) || (key(a) === key(b) && a < b);
  let best = -1;
  let around = -1;
  for (const ids of found.by_row.values()) {
    if (ids.length === 0) continue;
    const end = forward ? ids[0]! : ids[ids.length - 1]!;
    if (around < 0 || (forward ? before(end, around) : before(around, end))) around = end;
    if (from < 0) continue;
    let low = 0;
    let high = ids.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const id = ids[middle]!;
      if (forward ? before(from, id) : !before(id, from)) high = middle;
      else low = middle + 1;
    }
    const at = forward ? low : low - 1;
    if (at < 0 || at >= ids.length) continue;
    const id = ids[at]!;
    if (best < 0 || (forward ? before(id, best) : before(best, id))) best = id;
  }
  return best >= 0 ? best : around;
}

export interface Total {
  name: number;
  kind: string;
  count: number;
  sum_ns: number; // of what lies in the area
}

export interface Totals {
  rows: Total[]; // those that take most first
  count: number;
  cut: number; // of them, slices that begin before the area or end behind it
}

/** Of the slices that reach into [from, to), by name and kind of track: of a slice the part inside. */
export function totals(timeline: Timeline, rows: readonly Row[], from: number, to: number): Totals {
  const kinds = new Map<string, { counts: Uint32Array; sums: Float64Array }>();
  const { start, dur, name } = timeline;
  let all = 0;
  let cut = 0;
  for (const row of rows) {
    const kind = timeline.tracks[row.track]!.kind;
    let sums = kinds.get(kind);
    if (!sums) {
      sums = { counts: new Uint32Array(timeline.texts.length), sums: new Float64Array(timeline.texts.length) };
      kinds.set(kind, sums);
    }
    for (let i = first_ending_after(timeline, row.ids, from); i < row.ids.length; ++i) {
      const id = row.ids[i]!;
      const begin = start[id]!;
      if (begin >= to) break;
      const number = name[id]!;
      sums.counts[number] = sums.counts[number]! + 1;
      sums.sums[number] = sums.sums[number]! + Math.min(begin + dur[id]!, to) - Math.max(begin, from);
      ++all;
      if (begin < from || begin + dur[id]! > to) ++cut;
    }
  }
  const out: Total[] = [];
  for (const [kind, sums] of kinds)
    sums.counts.forEach((count, number) => {
      if (count > 0) out.push({ name: number, kind, count, sum_ns: sums.sums[number]! });
    });
  out.sort((a, b) => b.sum_ns - a.sum_ns || b.count - a.count);
  return { rows: out, count: all, cut };
}
