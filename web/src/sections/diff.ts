// Two sides or more compared: the verdict of each stage with its interval, where the difference comes from, and what the
// time went to before and after. Every other side is held against the first.
import { el, shortened, svg } from '../dom';
import { format_ms, format_percent } from '../format';
import type { Page } from '../page';
import { number_of, row_of, rows_of, text_of, texts_of, type Row } from '../result';

const kWidth = 1000;

/** Intervals of one metric are drawn on one axis, so that they can be held against each other. */
function reach_of(stages: Row[]): number {
  const ends = stages.flatMap((stage) => {
    const known = [...ends_of(stage), number_of(stage['noise_frac']), number_of(stage['change_frac'])];
    return known.map((end) => end ?? 0);
  });
  return Math.max(...ends.map(Math.abs), 1e-6) * 1.05;
}

/** The interval as a line on an axis with 0 in its middle; the band is what equal sides differ by. */
function interval_drawn(stage: Row, reach: number): SVGSVGElement {
  const at = (frac: number): number => ((frac / reach + 1) / 2) * kWidth;
  const change = number_of(stage['change_frac']);
  const noise = number_of(stage['noise_frac']);
  const [lo, hi] = ends_of(stage);
  const box = (class_name: string, from: number, to: number, y: number, height: number): SVGRectElement =>
    svg('rect', { class: class_name, x: at(from), width: Math.max(3, at(to) - at(from)), y, height });
  return svg(
    'svg',
    { viewBox: `0 0 ${kWidth} 16`, preserveAspectRatio: 'none', 'aria-hidden': 'true', class: 'bar' },
    noise !== null && box('diff-noise', -noise, noise, 0, 16),
    svg('rect', { class: 'diff-zero', x: at(0) - 1, width: 2, y: 0, height: 16 }),
    lo !== null && hi !== null && box('diff-interval', lo, hi, 6, 4),
    change !== null && svg('rect', { class: 'diff-change', x: at(change) - 4, width: 8, y: 2, height: 12 }),
  );
}

function ends_of(stage: Row): [number | null, number | null] {
  const ci = stage['ci95'];
  return Array.isArray(ci) ? [number_of(ci[0]), number_of(ci[1])] : [null, null];
}

const signed = (frac: number | null): string => (frac === null ? '–' : (frac > 0 ? '+' : '') + format_percent(frac));

function value_shown(stage: Row, side: string): string {
  const value = number_of(stage[side]);
  if (value === null) return '–';
  return text_of(stage['metric']) === 'rate' ? `${value.toPrecision(4)} /s` : format_ms(value);
}

function name_of_stage(stage: Row, several: boolean): string {
  const metric = text_of(stage['metric']);
  const at_pace = metric === 'step-at-pace' ? 'step at one pace of the host' : metric;
  const figure = metric === 'ttft' || metric === 'tpot' ? metric.toUpperCase() : at_pace;
  const shape = text_of(stage['shape']);
  const side = several ? `side ${number_of(stage['side'])}: ` : '';
  return shortened(`${side}${text_of(stage['kind'])} ${figure}${shape ? `, ${shape}` : ''}`);
}

export function add_diff(page: Page): void {
  page.claim('stages', 'gates', 'comparable', 'sides', 'kernels', 'operators', 'operations');
  const stages = rows_of(page.data['stages']);
  const several = rows_of(page.data['sides']).length > 2;
  add_verdicts(page, stages, several);
  add_attribution(page, stages, several);
  add_tables(page);
  page.section(
    'sides',
    'Sides',
    page.table({ id: 'sides', caption: 'What is compared', rows: rows_of(page.data['sides']) }),
  );
}

function add_verdicts(page: Page, stages: Row[], several: boolean): void {
  // A rate can grow without an end, a time shrink by 100 % at most: each has its axis.
  const is_rate = (stage: Row): boolean => text_of(stage['metric']) === 'rate';
  const reach_for = (rate: boolean): number => reach_of(stages.filter((stage) => is_rate(stage) === rate));
  const reaches = { rate: reach_for(true), time: reach_for(false) };
  const rows = stages.map((stage) => {
    const [lo, hi] = ends_of(stage);
    const reach = is_rate(stage) ? reaches.rate : reaches.time;
    return el(
      'tr',
      {},
      el('th', { scope: 'row' }, name_of_stage(stage, several)),
      el('td', {}, el('strong', {}, text_of(stage['verdict']))),
      el('td', { class: 'number' }, value_shown(stage, 'a')),
      el('td', { class: 'number' }, value_shown(stage, 'b')),
      el('td', { class: 'number' }, signed(number_of(stage['change_frac']))),
      el('td', { class: 'drawn' }, interval_drawn(stage, reach), el('small', {}, `axis ± ${format_percent(reach)}`)),
      el('td', { class: 'number' }, lo === null ? '–' : `${signed(lo)} to ${signed(hi)}`),
      el(
        'td',
        { class: 'number' },
        number_of(stage['noise_frac']) === null ? '–' : `± ${format_percent(number_of(stage['noise_frac'])!)}`,
      ),
    );
  });
  const heads = ['stage', 'verdict', 'before', 'after', 'change', 'interval, drawn', '95 % interval', 'noise'];
  const table = el(
    'table',
    { class: 'bars verdicts' },
    el('caption', {}, 'Verdicts: a line is the 95 % interval, the band what equal sides differ by'),
    el('thead', {}, el('tr', {}, ...heads.map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, ...rows),
  );
  const comparable = row_of(page.data['comparable']);
  const gates = rows_of(page.data['gates']);
  page.section(
    'answer',
    'Answer',
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'verdicts' }, table),
    ...list_of(
      'Why',
      stages.map(
        (stage) => `${name_of_stage(stage, several)}: ${text_of(stage['verdict'])}, ${text_of(stage['reason'])}`,
      ),
    ),
    ...list_of('Machines differ in', texts_of(comparable?.['differs'])),
    ...list_of('Not known of some recording', texts_of(comparable?.['not_known'])),
    gates.length > 0 && page.table({ id: 'gates', caption: 'What --fail-on asked for', rows: gates }),
  );
}

function list_of(title: string, lines: string[]): HTMLElement[] {
  if (lines.length === 0) return [];
  return [el('h3', {}, title), el('ul', {}, ...lines.map((line) => el('li', {}, shortened(line, 400))))];
}

function add_attribution(page: Page, stages: Row[], several: boolean): void {
  const falls = stages
    .filter((stage) => rows_of(stage['attribution']).length > 0)
    .map((stage) => waterfall(stage, name_of_stage(stage, several)));
  page.section(
    'attribution',
    'Where it comes from',
    ...(falls.length ? falls : [el('p', { class: 'missing' }, 'No stage has an attribution.')]),
  );
}

/** The parts one after another, each from where the one before it ended: they lead from the first side to the other. */
function waterfall(stage: Row, name: string): HTMLElement {
  const rest = number_of(stage['unattributed_ms']);
  const parts = rows_of(stage['attribution']);
  const steps = rest === null ? parts : [...parts, { part: 'rest', name: 'not attributed', delta_ms: rest }];
  const deltas = steps.map((step) => number_of(step['delta_ms']) ?? 0);
  const total = deltas.reduce((sum, delta) => sum + delta, 0);
  const ends = deltas.map((_, i) => deltas.slice(0, i + 1).reduce((sum, delta) => sum + delta, 0));
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const at = (ms: number): number => ((ms - low) / Math.max(high - low, 1e-12)) * kWidth;
  const rows = steps.map((step, i) => {
    const [delta, to] = [deltas[i] ?? 0, ends[i] ?? 0];
    const x = at(Math.min(to, to - delta));
    const width = Math.max(3, at(Math.max(to, to - delta)) - x);
    const bar = svg('rect', {
      class: step['part'] === 'rest' ? 'idle' : delta > 0 ? 'loss' : 'work',
      x: Math.min(x, kWidth - width),
      width,
      y: 1,
      height: 14,
    });
    return el(
      'tr',
      {},
      el('th', { scope: 'row' }, text_of(step['part']), el('small', {}, ` ${shortened(text_of(step['name']))}`)),
      el('td', { class: 'number' }, (delta > 0 ? '+' : '') + format_ms(delta)),
      el('td', { class: 'number' }, total === 0 ? '–' : format_percent(delta / total)),
      el(
        'td',
        { class: 'drawn' },
        svg(
          'svg',
          { viewBox: `0 0 ${kWidth} 16`, preserveAspectRatio: 'none', 'aria-hidden': 'true', class: 'bar' },
          bar,
        ),
      ),
    );
  });
  const caption = `${name}: ${value_shown(stage, 'a')} to ${value_shown(stage, 'b')}, by ${text_of(stage['attributed_by'])}`;
  const heads = ['part', 'change', 'of the change', 'from before to after'];
  return el(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    el(
      'table',
      { class: 'bars' },
      el('caption', {}, caption),
      el('thead', {}, el('tr', {}, ...heads.map((head) => el('th', { scope: 'col' }, head)))),
      el('tbody', {}, ...rows),
    ),
  );
}

function add_tables(page: Page): void {
  const lists: [string, string, string[]][] = [
    ['operations', 'Operations', ['side', 'kind']],
    ['kernels', 'Kernels', ['side', 'kind', 'presence', 'role']],
    ['operators', 'Operators', ['side', 'kind']],
  ];
  for (const [id, title, group_by] of lists) {
    const rows = rows_of(page.data[id]);
    page.section(
      id,
      title,
      rows.length
        ? page.table({ id, caption: `${title} before and after, per step`, rows, group_by })
        : el('p', { class: 'missing' }, 'Not in these recordings.'),
    );
  }
}
