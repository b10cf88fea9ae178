// Where tracks stand below each other.
import type { Row, Timeline } from './decode';

export const ROW_HEIGHT = 17;
export const GROUP_HEIGHT = 24;
export const COUNTER_HEIGHT = 38;
export const TRACK_GAP = 7;
const COLLAPSED_HEIGHT = ROW_HEIGHT;

export type Item =
  | { kind: 'group'; group: number; y: number; height: number }
  | { kind: 'counter'; counter: number; group: number; y: number; height: number }
  | { kind: 'track'; track: number; group: number; y: number; height: number; collapsed: boolean };

export interface Layout {
  items: Item[];
  height: number;
}

export interface Collapsed {
  groups: Set<number>;
  tracks: Set<number>;
}

/** Of many threads the first, which launch most, are open. */
export function collapsed_at_first(timeline: Timeline): Collapsed {
  const groups_open = 6;
  const rows_open = 40;
  const groups = new Set<number>();
  timeline.groups.forEach((_, group) => {
    if (group >= groups_open) groups.add(group);
  });
  const tracks = new Set<number>();
  timeline.tracks.forEach((track, at) => {
    if (track.rows.length > rows_open) tracks.add(at);
  });
  return { groups, tracks };
}

export function lay_out(timeline: Timeline, collapsed: Collapsed): Layout {
  const items: Item[] = [];
  let y = 0;
  timeline.groups.forEach((_, group) => {
    const counters = timeline.counters.flatMap((counter, at) => (counter.group === group ? [at] : []));
    const tracks = timeline.tracks.flatMap((track, at) => (track.group === group ? [at] : []));
    if (counters.length === 0 && tracks.length === 0) return;
    items.push({ kind: 'group', group, y, height: GROUP_HEIGHT });
    y += GROUP_HEIGHT + 3;
    if (collapsed.groups.has(group)) return;
    const add_track = (track: number): void => {
      const closed = collapsed.tracks.has(track);
      const height = (closed ? COLLAPSED_HEIGHT : timeline.tracks[track]!.rows.length * ROW_HEIGHT) + TRACK_GAP;
      items.push({ kind: 'track', track, group, y, height, collapsed: closed });
      y += height;
    };
    // What the GPU did is read first, and beside the threads that gave it the work.
    tracks.forEach(add_track);
    for (const counter of counters) {
      items.push({ kind: 'counter', counter, group, y, height: COUNTER_HEIGHT });
      y += COUNTER_HEIGHT;
    }
  });
  return { items, height: y };
}

/** The first item that ends below `y`: items are in order. */
export function first_item_below(layout: Layout, y: number): number {
  let low = 0;
  let high = layout.items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const item = layout.items[middle]!;
    if (item.y + item.height > y) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function item_at(layout: Layout, y: number): Item | null {
  const item = layout.items[first_item_below(layout, y)];
  return item && item.y <= y ? item : null;
}

/** The row of a track's slices at that height. */
export function row_at(timeline: Timeline, layout: Layout, y: number): Row | null {
  const item = item_at(layout, y);
  if (item?.kind !== 'track') return null;
  const rows = timeline.tracks[item.track]!.rows;
  return (item.collapsed ? rows[0] : rows[Math.floor((y - item.y) / ROW_HEIGHT)]) ?? null;
}

/** Rows of all tracks between two heights, in order; of a collapsed track all. */
export function rows_between(timeline: Timeline, layout: Layout, top: number, bottom: number): Row[] {
  const out: Row[] = [];
  for (let i = first_item_below(layout, top); i < layout.items.length && layout.items[i]!.y < bottom; ++i) {
    const item = layout.items[i]!;
    if (item.kind !== 'track') continue;
    const rows = timeline.tracks[item.track]!.rows;
    if (item.collapsed) {
      out.push(...rows);
      continue;
    }
    const first = Math.max(0, Math.floor((top - item.y) / ROW_HEIGHT));
    const last = Math.min(rows.length, Math.ceil((bottom - item.y) / ROW_HEIGHT));
    out.push(...rows.slice(first, last));
  }
  return out;
}

/** The middle of a slice's row, or of its group where that is collapsed; null where it is not shown at all. */
export function middle_of(timeline: Timeline, layout: Layout, track: number, depth: number): number | null {
  const group = timeline.tracks[track]!.group;
  for (const item of layout.items) {
    if (item.kind === 'track' && item.track === track)
      return item.y + (item.collapsed ? 0 : depth * ROW_HEIGHT) + ROW_HEIGHT / 2;
    if (item.kind === 'group' && item.group > group) break;
  }
  const head = layout.items.find((item) => item.kind === 'group' && item.group === group);
  return head ? head.y + head.height / 2 : null;
}
