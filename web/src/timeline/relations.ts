// What slices have to do with each other beyond their flows: the step that one belongs to, and the waits inside one.
import { first_ending_after, first_starting_at, track_of, type Timeline, type Track } from './decode';

export interface InStep {
  step: number; // slice
  number: number; // among the steps of its name on that GPU, from 1 on
  count: number;
}

/** The step of a track of stages that is under way at a moment. */
function step_at(timeline: Timeline, stages: Track, time: number): number {
  for (const row of stages.rows) {
    const id = row.ids[first_ending_after(timeline, row.ids, time)];
    if (id !== undefined && timeline.start[id]! <= time) return id;
  }
  return -1;
}

function numbered(timeline: Timeline, stages: Track, step: number): InStep {
  let count = 0;
  let number = 0;
  for (let i = stages.first; i < stages.first + stages.count; ++i) {
    if (timeline.name[i] !== timeline.name[step]) continue;
    ++count;
    if (i <= step) ++number;
  }
  return { step, number, count };
}

/** The step whose work it is: of a call that launches something the step of that (`connected`: slices that lead to it),
 *  of everything else the step that is under way when it starts, on its GPU or, of the host, on the first that has one. */
export function step_of(timeline: Timeline, slice: number, connected: readonly number[]): InStep | null {
  const track = track_of(timeline, slice);
  const on_gpu = ['stream', 'idle', 'waits', 'path'].includes(track.kind);
  let group = on_gpu ? track.group : -1;
  let time = timeline.start[slice]!;
  if (track.kind === 'calls') {
    const launched = connected.find(
      (other) => timeline.flow[other] === slice && track_of(timeline, other).kind === 'stream',
    );
    if (launched !== undefined) {
      group = track_of(timeline, launched).group;
      time = timeline.start[launched]!;
    }
  }
  for (const stages of timeline.tracks) {
    if (stages.kind !== 'stages' || (group >= 0 && stages.group !== group)) continue;
    const step = step_at(timeline, stages, time);
    if (step >= 0) return numbered(timeline, stages, step);
  }
  return null;
}

/** Of a range, an operator or a Python function: the calls in it that waited for the GPU, as `.item()` does. */
export function waits_inside(timeline: Timeline, slice: number): { longest: number; count: number } | null {
  const track = track_of(timeline, slice);
  if (!['ranges', 'python', 'operators'].includes(track.kind)) return null;
  const { start, dur, flow } = timeline;
  const end = start[slice]! + dur[slice]!;
  let longest = -1;
  let count = 0;
  for (const calls of timeline.tracks) {
    if (calls.kind !== 'calls' || calls.group !== track.group) continue;
    for (const row of calls.rows)
      for (let i = first_starting_at(timeline, row.ids, start[slice]!); i < row.ids.length; ++i) {
        const call = row.ids[i]!;
        if (start[call]! >= end) break;
        if (flow[call]! < 0 || start[call]! + dur[call]! > end) continue;
        ++count;
        if (longest < 0 || dur[call]! > dur[longest]!) longest = call;
      }
  }
  return longest < 0 ? null : { longest, count };
}
