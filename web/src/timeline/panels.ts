// What stands below the canvas: the selected slice in words, and tables of totals.
import { el, printable, shortened } from '../dom';
import { format_count, format_percent } from '../format';
import { track_of, type Row, type Timeline, type Track } from './decode';
import { step_of, waits_inside } from './relations';
import { totals, type Totals } from './find';
import { format_span } from './time';
import type { View } from './view';

const TABLE_ROWS = 50;

/** One line that says what a slice is, for those who do not see it. */
export function spoken(view: View, slice: number): string {
  const { timeline } = view;
  const track = track_of(timeline, slice);
  return `${shortened(view.name(slice), 120)}, ${format_span(timeline.dur[slice]!)}, at ${format_span(timeline.start[slice]!)}, ${shortened(track.name, 60)} of ${shortened(timeline.groups[track.group]!, 60)}${view.on_path(slice) ? ', on the critical path' : ''}`;
}

export function details(view: View, slice: number, go: (slice: number) => void): HTMLElement {
  const { timeline } = view;
  const { start, dur, detail, tint, flow } = timeline;
  const track = track_of(timeline, slice);
  const list = el('dl', { class: 'timeline-details' });
  const add = (term: string, ...words: (string | Node)[]): void => {
    list.append(el('dt', {}, term), el('dd', {}, ...words));
  };
  const link = (to: number): HTMLElement =>
    el('button', { type: 'button', class: 'timeline-link', click: () => go(to) }, shortened(view.name(to), 100));
  add('Name', view.name(slice));
  if (detail[slice] !== 0) add('Detail', shortened(timeline.texts[detail[slice]!]!, 2000));
  add('Where', `${printable(track.name)}, ${printable(timeline.groups[track.group]!)}`);
  add('Kind', timeline.tints[tint[slice]!] ?? '');
  add('Start', `${format_span(start[slice]!)}${wall_clock(timeline, start[slice]!)}`);
  add('Duration', `${format_span(dur[slice]!)} (${format_count(dur[slice]!)} ns)`);
  if (track.kind !== 'stages') add('Step', ...step_words(view, slice));
  const links = (term: string, to: readonly number[]): void => {
    if (to.length === 0) return;
    const shown = to.slice(0, 12).flatMap((other): (string | Node)[] => [link(other), ' ']);
    if (to.length > 12) shown.push(`and ${format_count(to.length - 12)} more`);
    add(term, ...shown);
  };
  const cause = flow[slice]!;
  if (track.kind === 'stream' && cause >= 0)
    add('Launched by', link(cause), ` ${format_span(Math.max(0, start[slice]! - start[cause]!))} before`);
  if (waits(track) && cause >= 0) add('Waited for', link(cause), wait_words(timeline, slice, cause));
  const inside = waits_inside(timeline, slice);
  if (inside) {
    const what = flow[inside.longest]!;
    const more = inside.count > 1 ? `, the longest of ${format_count(inside.count)} waits inside` : '';
    add('Waited for', link(what), ` in `, link(inside.longest), more, wait_words(timeline, inside.longest, what));
  }
  // What this slice names itself is above.
  const others = view.flows.filter((other) => !((track.kind === 'stream' || waits(track)) && other === cause));
  const waiting = track.kind === 'stream' ? others.filter((other) => waits(track_of(timeline, other))) : [];
  links('Waited for by', waiting);
  links(
    track.kind === 'calls' ? 'Leads to' : 'Belongs to',
    others.filter((other) => !waiting.includes(other)),
  );
  add(
    'Critical path',
    view.on_path(slice) ? 'lies on it' : track.kind === 'path' ? 'a piece of it' : 'not on a path that is shown',
  );
  return list;
}

// Tracks whose flows lead to what was waited for.
const waits = (track: Track): boolean => track.kind === 'calls' || track.kind === 'waits';

/** ", which ended 1.2 us before it returned": what a wait waited for, or found finished. */
function wait_words(timeline: Timeline, wait: number, what: number): string {
  const { start, dur } = timeline;
  const end = start[what]! + dur[what]!;
  if (end <= start[wait]!) return `, which had ended ${format_span(start[wait]! - end)} before it began`;
  const left = start[wait]! + dur[wait]! - end;
  return left >= 0 ? `, which ended ${format_span(left)} before it returned` : '';
}

/** Where a slice stands in its step. */
function step_words(view: View, slice: number): string[] {
  const { timeline } = view;
  const found = step_of(timeline, slice, view.flows);
  if (!found) return ['in none'];
  const { step, number, count } = found;
  const name = `${shortened(view.name(step), 60)}, ${format_count(number)} of ${format_count(count)}`;
  const after = timeline.start[slice]! - timeline.start[step]!;
  return [
    after >= 0
      ? `${format_span(after)} after the start of ${name}`
      : `${format_span(-after)} before the start of ${name}, whose work it launches`,
  ];
}

function wall_clock(timeline: Timeline, ns: number): string {
  if (timeline.base_unix_ns === 0n) return '';
  const at = Number(timeline.base_unix_ns / 1000000n) + ns / 1e6;
  return Number.isFinite(at) && Math.abs(at) < 8.64e15 ? `, ${new Date(at).toISOString()}` : '';
}

const KIND_WORDS: Record<string, string> = {
  stages: 'stage',
  path: 'critical path',
  stream: 'GPU',
  idle: 'GPU idle',
  waits: 'GPU wait',
  ranges: 'range',
  python: 'Python',
  operators: 'operator',
  libraries: 'math library',
  calls: 'CUDA call',
  recorder: 'recorder',
};

/** By name, those that take most first. Shares are of the area's length. */
export function totals_table(timeline: Timeline, sums: Totals, span: number, caption: string): HTMLElement {
  const head = el('tr', {});
  for (const title of ['Name', 'Kind', 'Count', 'Sum', 'Mean', 'Share of the time'])
    head.append(el('th', { scope: 'col' }, title));
  const body = el('tbody', {});
  for (const row of sums.rows.slice(0, TABLE_ROWS)) {
    body.append(
      el(
        'tr',
        {},
        el('th', { scope: 'row' }, shortened(timeline.texts[row.name]!, 200)),
        el('td', {}, KIND_WORDS[row.kind] ?? row.kind),
        el('td', { class: 'number' }, format_count(row.count)),
        el('td', { class: 'number', 'data-ns': row.sum_ns }, format_span(row.sum_ns)),
        el('td', { class: 'number' }, format_span(row.sum_ns / row.count)),
        el('td', { class: 'number' }, format_percent(row.sum_ns / Math.max(span, 1))),
      ),
    );
  }
  const more = sums.rows.length - TABLE_ROWS;
  return el(
    'div',
    { class: 'timeline-totals', tabindex: 0, role: 'region', 'aria-label': caption },
    el('table', {}, el('caption', {}, caption), el('thead', {}, head), body),
    more > 0 && el('p', {}, `${format_count(more)} more names take less each.`),
  );
}

export function totals_of(view: View, rows: readonly Row[], from: number, to: number, what: string): HTMLElement {
  const sums = totals(view.timeline, rows, from, to);
  const cut = sums.cut > 0 ? `; of the ${format_count(sums.cut)} that its edges cut, only the part inside counts` : '';
  const caption = `${what}: ${format_count(sums.count)} slices in ${format_span(to - from)} from ${format_span(from)} on${cut}`;
  return totals_table(view.timeline, sums, to - from, caption);
}

const KEYS: readonly (readonly [string, string])[] = [
  ['W, S', 'zoom in, out'],
  ['A, D', 'to the left, to the right'],
  ['arrow keys', 'from slice to slice of a row, and from row to row'],
  ['Enter', 'select the slice under the cursor'],
  ['F', 'fit the selected slice or area to the view'],
  ['M', 'mark the stretch of the selected slice or area; again: no mark'],
  ['/', 'search names; /expression/ is a regular expression'],
  ['N, Shift N', 'next and previous of what was found'],
  ['R', 'select what is visible as an area: totals by name'],
  ['C', 'close or open the track under the cursor'],
  ['Esc', 'drop the selection'],
  ['?', 'this list'],
  ['drag', 'select an area; with Shift: move the view'],
  ['wheel', 'scroll; with Ctrl: zoom at the pointer; with Shift: to the left and right'],
];

export function help(): HTMLElement {
  const list = el('dl', {});
  for (const [keys, what] of KEYS) list.append(el('dt', {}, keys), el('dd', {}, what));
  return list;
}
