// TTFT and TPOT over runs of one kind, name and GPU, with the places where their level changed. The server finds these
// (src/serve/trends.h says how); here they are drawn, and stand in words and in a table.
import { el, shortened, type Child } from '../dom';
import { format_ms, format_percent } from '../format';
import type { Page } from '../page';
import { plot } from '../plot';
import { number_of, rows_of, text_of, type Row } from '../result';
import { data_table } from '../table';
import { time_of } from './api';

const measures = [
  ['tpot', 'TPOT'],
  ['ttft', 'TTFT'],
] as const;

const label_of = (trend: Row): string =>
  shortened(
    `${text_of(trend['kind'])} ${text_of(trend['name'])}, ${text_of(trend['gpu']) || 'no GPU named'}: ${rows_of(trend['points']).length} runs`,
    120,
  );

const percent = (before: number, after: number): string =>
  before > 0 ? ` (${after > before ? '+' : ''}${format_percent(after / before - 1)})` : '';

function in_words(name: string, changes: Row[]): HTMLElement {
  if (changes.length === 0) return el('p', { class: 'note' }, `${name}: no change of level found`);
  const said = changes.map((change) => {
    const number = number_of(change['number']) ?? 0;
    const before = number_of(change['before_ms']) ?? 0;
    const after = number_of(change['after_ms']) ?? 0;
    return el(
      'li',
      {},
      `${name} from run `,
      el('a', { href: `/runs/${number}` }, String(number)),
      ` on ${format_ms(after)} instead of ${format_ms(before)}${percent(before, after)}; by chance in ${format_percent(number_of(change['probability']) ?? 1)} of series at most`,
    );
  });
  return el('ul', { class: 'changes', 'data-measure': name }, ...said);
}

/** Of each value, the level that holds there: the median between the changes beside it. */
function levels(points: Row[], column: string, changes: Row[]): (number | null)[] {
  const first = changes[0];
  if (!first) return points.map(() => null);
  let level = number_of(first['before_ms']);
  let next = 0;
  return points.map((point) => {
    while (next < changes.length && (number_of(point['number']) ?? 0) >= (number_of(changes[next]?.['number']) ?? 0))
      level = number_of(changes[next++]?.['after_ms']);
    return number_of(point[column]) === null ? null : level;
  });
}

function chart(trend: Row, id: string, name: string): Child[] {
  const column = `${id}_ms`;
  const points = rows_of(trend['points']).filter((point) => number_of(point[column]) !== null);
  if (points.length < 2) return [];
  const changes = rows_of(trend[`${id}_changes`]);
  const numbers = points.map((point) => number_of(point['number']) ?? 0);
  const values = points.map((point) => number_of(point[column]));
  const changed = new Set(changes.map((change) => number_of(change['number'])));
  const measured = { label: name, values, dots: true, format: format_ms };
  const level = {
    label: 'level: median between changes',
    values: levels(points, column, changes),
    bare: true,
    format: format_ms,
  };
  const first = {
    label: 'first run of a new level',
    values: points.map((point, i) => (changed.has(number_of(point['number'])) ? (values[i] ?? null) : null)),
    dots: true,
    hollow: true,
    format: format_ms,
  };
  return [
    plot({
      name: `${name} by run`,
      x: points.map((_, i) => i),
      x_label: 'run',
      x_format: (at) => (Number.isInteger(at) && numbers[at] !== undefined ? String(numbers[at]) : ''),
      series: changes.length > 0 ? [level, measured, first] : [measured],
      tight: true,
      pick: (at) => (location.href = `/runs/${numbers[at] ?? 0}`),
    }),
    in_words(name, changes),
  ];
}

export function add_trends(page: Page, answer: Row): void {
  const trends = rows_of(answer['trends']);
  const shown = el('div');
  const choice = el('select', {}, ...trends.map((trend, i) => el('option', { value: String(i) }, label_of(trend))));
  const least = number_of(answer['part_least']) ?? 0;
  const alarms = format_percent(number_of(answer['false_alarms_most_frac']) ?? 0);
  const draw = (index: number): void => {
    const trend = trends[index];
    if (!trend) return;
    choice.value = String(index);
    const rows = rows_of(trend['points'])
      .map((point): Row => ({
        number: point['number'] ?? null,
        when: time_of(number_of(point['start_unix_ns'])),
        ttft_ms: point['ttft_ms'] ?? null,
        tpot_ms: point['tpot_ms'] ?? null,
      }))
      .reverse();
    const link = (column: string, row: Row): string | null =>
      column === 'number' ? `/runs/${number_of(row['number']) ?? 0}` : null;
    const table = data_table({
      id: 'points',
      caption: 'Runs of this series, the newest first',
      rows,
      fields: page.fields('runs'),
      link,
    });
    shown.replaceChildren(
      ...(measures.flatMap(([id, name]) => chart(trend, id, name)).filter(Boolean) as Node[]),
      table.root,
    );
  };
  choice.addEventListener('change', () => (location.hash = `#trends/${choice.value}`));
  const none = 'A trend takes two whole runs of one kind and name, on one GPU, that have a TTFT or TPOT.';
  const section = page.section(
    'trends',
    'Trends',
    trends.length === 0
      ? el('p', { class: 'note' }, none)
      : el('div', { class: 'controls' }, el('label', { class: 'choice' }, 'runs of ', choice)),
    shown,
    trends.length === 0
      ? null
      : el(
          'p',
          { class: 'note' },
          `A change of level is marked where ranks before and after it differ so clearly (Mann-Whitney, all places to split taken together) that at most ${alarms} of series without one would show it; it takes ${least} runs on either side. Runs minutes apart share the state of their machine, so a change may be the machine's.`,
        ),
  );
  page.route('trends', (rest) => {
    if (/^\d+$/.test(rest)) draw(Number(rest));
    return section;
  });
  draw(0);
}
