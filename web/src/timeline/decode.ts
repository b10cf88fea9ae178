// A packed timeline (docs/formats/page-timeline.md) as typed arrays. Slices of a track stand together, in order of their
// start; a row is the slices of one depth of a track: their starts and ends are both in order.

export interface Row {
  track: number;
  depth: number;
  ids: Uint32Array; // slices
  path: Uint32Array; // those of them that the critical path lies on
}

export interface Track {
  name: string;
  group: number;
  kind: string;
  first: number;
  count: number;
  rows: Row[]; // by depth
}

export interface Counter {
  name: string;
  unit: string;
  group: number;
  low: number;
  high: number;
  times: Float64Array;
  values: Float32Array; // NaN: not known from here on
}

export interface StepWindow {
  from_ns: number;
  start_ns: number;
  end_ns: number;
}

export interface Stage {
  stage: string;
  steps: number;
  median: StepWindow;
  slowest: StepWindow;
}

export interface Timeline {
  duration: number;
  base_unix_ns: bigint;
  merged: { below_ns: number; slices: number } | null;
  groups: string[];
  tints: string[];
  tracks: Track[];
  counters: Counter[];
  stages: Stage[];
  texts: string[]; // by number; 0: none
  shorts: (string | undefined)[]; // by number of a text: what stands for it where there is little room
  slices: number;
  start: Float64Array;
  dur: Float64Array;
  name: Uint32Array;
  detail: Uint32Array;
  depth: Uint16Array;
  tint: Uint8Array;
  flow: Int32Array; // -1: none
}

interface Column {
  name: string;
  width: number;
  offset: number;
  bytes: number;
}

interface Header {
  format: string;
  version: number;
  base_unix_ns: string;
  duration_ns: number;
  slices: number;
  merged: Timeline['merged'];
  tints: string[];
  groups: string[];
  tracks: Omit<Track, 'rows'>[];
  counters: (Omit<Counter, 'times' | 'values'> & { first: number; count: number })[];
  stages: Stage[];
  texts: string[];
  shorts: Record<string, string>;
  columns: Column[];
}

const MAGIC = 'LPTIME1\n';
const UNKNOWN = 0xffff;

function read_header(packed: Uint8Array): { header: Header; body: Uint8Array } {
  const text = new TextDecoder();
  if (text.decode(packed.subarray(0, MAGIC.length)) !== MAGIC)
    throw new Error('expected a packed timeline of version 1, found something else');
  const length = new DataView(packed.buffer, packed.byteOffset).getUint32(MAGIC.length, true);
  const begin = MAGIC.length + 4;
  const header = JSON.parse(text.decode(packed.subarray(begin, begin + length))) as Header;
  return { header, body: packed.subarray(begin + length) };
}

type Numbers = Float64Array | Uint32Array | Uint16Array | Uint8Array;

/** Adds up the planes of a column; the loops see one type of array only, which makes them several times faster. */
function read_column<T extends Numbers>(header: Header, body: Uint8Array, name: string, into: T): T {
  const column = header.columns.find((one) => one.name === name);
  if (!column || column.bytes !== column.width * into.length)
    throw new Error(`expected ${into.length} values of ${name} in the packed timeline, found others`);
  const count = into.length;
  const low = new Uint32Array(count);
  for (let plane = 0; plane < Math.min(column.width, 4); ++plane)
    add_plane(body, column.offset + plane * count, 8 * plane, low);
  into.set(low);
  for (let plane = 4; plane < column.width; ++plane)
    for (let i = 0; i < count; ++i) {
      const byte = body[column.offset + plane * count + i]!;
      if (byte !== 0) into[i] = into[i]! + byte * 2 ** (8 * plane);
    }
  return into;
}

function add_plane(body: Uint8Array, offset: number, shift: number, into: Uint32Array): void {
  for (let i = 0; i < into.length; ++i) into[i] = into[i]! | (body[offset + i]! << shift);
}

/** Differences become values, for each stretch of [first, count]. */
function add_up(values: Float64Array, stretches: readonly { first: number; count: number }[]): void {
  for (const { first, count } of stretches) {
    let sum = 0;
    for (let i = first; i < first + count; ++i) values[i] = sum += values[i]!;
  }
}

function read_flows(header: Header, body: Uint8Array): Int32Array {
  const codes = read_column(header, body, 'flow', new Float64Array(header.slices));
  const out = new Int32Array(header.slices).fill(-1);
  for (const { first, count } of header.tracks) {
    let target = 0;
    for (let i = first; i < first + count; ++i) {
      const code = codes[i]!;
      if (code === 0) continue;
      const zigzag = code - 1;
      target += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
      if (target >= 0 && target < header.slices) out[i] = target;
    }
  }
  return out;
}

function rows_of(track: Omit<Track, 'rows'>, number: number, depth: Uint16Array, on_path: Uint8Array): Row[] {
  const counts: number[] = [];
  const marked: number[] = [];
  const end = track.first + track.count;
  for (let i = track.first; i < end; ++i) {
    const at = depth[i]!;
    while (counts.length <= at) {
      counts.push(0);
      marked.push(0);
    }
    counts[at] = counts[at]! + 1;
    if (on_path[i]) marked[at] = marked[at]! + 1;
  }
  const rows = counts.map((count, at) => ({
    track: number,
    depth: at,
    ids: new Uint32Array(count),
    path: new Uint32Array(marked[at]!),
  }));
  const next = new Uint32Array(counts.length);
  const next_marked = new Uint32Array(counts.length);
  for (let i = track.first; i < end; ++i) {
    const at = depth[i]!;
    rows[at]!.ids[next[at]!++] = i;
    if (on_path[i]) rows[at]!.path[next_marked[at]!++] = i;
  }
  return rows;
}

function read_counters(header: Header, body: Uint8Array): Counter[] {
  const total = header.counters.reduce((sum, one) => sum + one.count, 0);
  const times = read_column(header, body, 'counter_time', new Float64Array(total));
  const codes = read_column(header, body, 'counter_value', new Uint16Array(total));
  add_up(times, header.counters);
  return header.counters.map((one) => {
    const values = new Float32Array(one.count);
    const step = (one.high - one.low) / (UNKNOWN - 1);
    for (let i = 0; i < one.count; ++i) {
      const code = codes[one.first + i]!;
      values[i] = code === UNKNOWN ? NaN : one.low + code * step;
    }
    return { ...one, times: times.subarray(one.first, one.first + one.count), values };
  });
}

export function decode(packed: Uint8Array): Timeline {
  const { header, body } = read_header(packed);
  const n = header.slices;
  const start = read_column(header, body, 'start', new Float64Array(n));
  add_up(start, header.tracks);
  const depth = read_column(header, body, 'depth', new Uint16Array(n));
  const flow = read_flows(header, body);
  const on_path = new Uint8Array(n);
  for (const track of header.tracks)
    if (track.kind === 'path')
      for (let i = track.first; i < track.first + track.count; ++i) if (flow[i]! >= 0) on_path[flow[i]!] = 1;
  const shorts: (string | undefined)[] = [];
  for (const [number, text] of Object.entries(header.shorts)) shorts[Number(number)] = text;
  return {
    duration: Math.max(1, header.duration_ns),
    base_unix_ns: BigInt(header.base_unix_ns),
    merged: header.merged,
    groups: header.groups,
    tints: header.tints,
    tracks: header.tracks.map((track, i) => ({ ...track, rows: rows_of(track, i, depth, on_path) })),
    counters: read_counters(header, body),
    stages: header.stages,
    texts: ['', ...header.texts],
    shorts,
    slices: n,
    start,
    dur: read_column(header, body, 'dur', new Float64Array(n)),
    name: read_column(header, body, 'name', new Uint32Array(n)),
    detail: read_column(header, body, 'detail', new Uint32Array(n)),
    depth,
    tint: read_column(header, body, 'tint', new Uint8Array(n)),
    flow,
  };
}

export function track_of(timeline: Timeline, slice: number): Track {
  let low = 0;
  let high = timeline.tracks.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (timeline.tracks[middle]!.first <= slice) low = middle;
    else high = middle - 1;
  }
  return timeline.tracks[low]!;
}

/** The first of a row's slices that ends behind `time`: ends are in order as starts are. */
export function first_ending_after(timeline: Timeline, ids: Uint32Array, time: number): number {
  let low = 0;
  let high = ids.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const id = ids[middle]!;
    if (timeline.start[id]! + timeline.dur[id]! > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The first at or behind `from` that starts at `time` or later. Gallops: the answer is mostly near. */
export function first_starting_at(timeline: Timeline, ids: Uint32Array, time: number, from = 0): number {
  const starts = timeline.start;
  let step = 1;
  let low = from;
  let high = from;
  while (high < ids.length && starts[ids[high]!]! < time) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  high = Math.min(high, ids.length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[ids[middle]!]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
