// What stands below the canvas: the selected slice in words, and tables of totals.
import { el, printable, shortened } from '../dom';
import { format_count, format_percent } from '../format';
import { track_of, type Row, type Timeline } from './decode';
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
  if (track.kind === 'stream') {
    const cause = flow[slice]!;
    if (cause >= 0) {
      add('Launched by', link(cause), ` ${format_span(Math.max(0, start[slice]! - start[cause]!))} before`);
    }
  }
  const others = view.flows.filter((other) => !(track.kind === 'stream' && other === flow[slice]));
  if (others.length > 0) {
    const shown = others.slice(0, 12).flatMap((other): (string | Node)[] => [link(other), ' ']);
    if (others.length > 12) shown.push(`and ${format_count(others.length - 12)} more`);
    add(track.kind === 'calls' ? 'Leads to' : 'Belongs to', ...shown);
  }
  add(
    'Critical path',
    view.on_path(slice) ? 'lies on it' : track.kind === 'path' ? 'a piece of it' : 'not on a path that is shown',
  );
  return list;
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
  const caption = `${what}: ${format_count(sums.count)} slices in ${format_span(to - from)} from ${format_span(from)} on`;
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
