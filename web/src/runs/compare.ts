// Choosing runs to compare: the server's page of `llmprof diff` judges them. Where it cannot, because a recording is gone
// for example, this says why, and has the figures of two results side by side, without a verdict.
import { el, shortened, type Child } from '../dom';
import { Fields } from '../fields';
import { format_percent } from '../format';
import type { Page } from '../page';
import { number_of, row_of, rows_of, text_of, type Row, type Value } from '../result';
import { data_table } from '../table';
import { get, time_of } from './api';
import { with_results } from './list';

const kNothing =
  'These two have no figures in common: comparing takes two reports (of run or analyze), or two of bench.';

class ChangeFields extends Fields {
  override show(field: string, value: Value | undefined, row?: Row): string | null {
    if (field === 'change_frac' && typeof value === 'number') return `${value > 0 ? '+' : ''}${format_percent(value)}`;
    return super.show(field, value, row);
  }
  override about(field: string): string {
    return field === 'change_frac' ? 'after over before, less 1' : field;
  }
}

interface Figure {
  key: string[]; // names it in both runs
  value: number | null;
}

/** Rows of both, in the order of `after`; a figure that only one of them has is not known of the other. */
export function paired(columns: string[], unit: string, before: Figure[], after: Figure[]): Row[] {
  const key_of = (figure: Figure): string => JSON.stringify(figure.key);
  const of_before = new Map(before.map((figure) => [key_of(figure), figure]));
  const of_after = new Map(after.map((figure) => [key_of(figure), figure]));
  return [...new Map([...of_after, ...of_before]).values()].map((figure) => {
    const a = of_before.get(key_of(figure))?.value ?? null;
    const b = of_after.get(key_of(figure))?.value ?? null;
    const row: Row = Object.fromEntries(columns.map((column, i) => [column, figure.key[i] ?? '']));
    row[`before_${unit}`] = a;
    row[`after_${unit}`] = b;
    row[`difference_${unit}`] = a === null || b === null ? null : b - a;
    row['change_frac'] = a === null || b === null || a === 0 ? null : b / a - 1;
    return row;
  });
}

const over = (total: number | null, count: number): number | null =>
  total === null || count <= 0 ? null : total / count;

/** How often each stage took place, so that sums become times of one step. */
function counts_of(data: Row): Map<string, number> {
  const counts = new Map<string, number>();
  for (const stage of rows_of(data['stages'])) {
    const name = text_of(stage['name']);
    counts.set(name, Math.max(counts.get(name) ?? 0, number_of(stage['count']) ?? 0));
  }
  return counts;
}

function headline(data: Row): Figure[] {
  const figures = row_of(row_of(data['latency'])?.['headline']) ?? {};
  return ['ttft_ms', 'ttft_p99_ms', 'tpot_ms', 'itl_ms', 'itl_p99_ms'].map((name) => ({
    key: [name.replace('_ms', '').replace('_p99', ', 99 % of').toUpperCase().replace(' OF', ' of')],
    value: number_of(figures[name]),
  }));
}

/** Milliseconds of one step of the stage, by the columns that name a row. */
function per_step(data: Row, list: string, names: string[], value: string): Figure[] {
  const counts = counts_of(data);
  const sums = new Map<string, Figure>();
  for (const row of rows_of(data[list])) {
    const stage = text_of(row[list === 'stages' ? 'name' : 'stage']);
    const key = names.map((name) => (typeof row[name] === 'number' ? String(row[name]) : text_of(row[name])));
    const ms = over(number_of(row[value]), counts.get(stage) ?? 0);
    const known = sums.get(JSON.stringify(key));
    if (!known) sums.set(JSON.stringify(key), { key, value: ms });
    else known.value = known.value === null || ms === null ? null : known.value + ms;
  }
  return [...sums.values()];
}

interface Part {
  id: string;
  title: string;
  columns: string[];
  unit: string;
  figures: (data: Row) => Figure[];
  by_size?: boolean; // the largest differences first
}

const parts: Record<string, Part[]> = {
  'llmprof.report/1': [
    { id: 'headline', title: 'Headline figures', columns: ['figure'], unit: 'ms', figures: headline },
    {
      id: 'stages',
      title: 'Time of one step of each stage, as recorded',
      columns: ['name', 'device'],
      unit: 'ms',
      figures: (data) => per_step(data, 'stages', ['name', 'device'], 'wall_ms'),
    },
    {
      id: 'busy',
      title: 'GPU busy in one step of each stage',
      columns: ['name', 'device'],
      unit: 'ms',
      figures: (data) => per_step(data, 'stages', ['name', 'device'], 'gpu_busy_ms'),
    },
    {
      id: 'operators',
      by_size: true,
      title: 'GPU time of operators in one step, without that of operators inside them',
      columns: ['name', 'stage'],
      unit: 'ms',
      figures: (data) => per_step(data, 'operators', ['name', 'stage'], 'gpu_self_ms'),
    },
    {
      id: 'kernels',
      by_size: true,
      title: 'Kernels in one step',
      columns: ['name', 'stage'],
      unit: 'ms',
      figures: (data) => per_step(data, 'kernels_topk', ['name', 'stage'], 'total_ms'),
    },
  ],
  bench: [
    {
      id: 'cases',
      title: 'Median time of each case',
      columns: ['name', 'variant', 'shape', 'dtype', 'regime'],
      unit: 'us',
      figures: (data) =>
        rows_of(data['cases']).map((row) => ({
          key: ['name', 'variant', 'shape', 'dtype', 'regime'].map((name) => text_of(row[name])),
          value: number_of(row['median_us']),
        })),
    },
  ],
};

const parts_of = (data: Row): Part[] => {
  const schema = text_of(data['schema']);
  return parts[schema.startsWith('llmprof.bench/') ? 'bench' : schema] ?? [];
};

const label_of = (run: Row): string =>
  shortened(
    `${String(run['number'])}  ${text_of(run['kind'])} ${text_of(run['name'])}  ${time_of(number_of(run['start_unix_ns']))}`,
    90,
  );

const chosen_in = (select: HTMLSelectElement): string =>
  [...select.selectedOptions]
    .map((option) => Number(option.value))
    .sort((a, b) => a - b)
    .join(',');

function choose(select: HTMLSelectElement, numbers: string): void {
  const wanted = new Set(numbers.split(','));
  for (const option of select.options) option.selected = wanted.has(option.value);
}

export class Comparison {
  private readonly before: HTMLSelectElement;
  private readonly after: HTMLSelectElement;
  private readonly status = el('p', { role: 'status', class: 'count' });
  private readonly shown = el('div');
  private readonly section: HTMLElement;
  private asked = 0; // answers to earlier questions may come later

  constructor(private readonly page: Page) {
    const runs = with_results(page.data);
    const choice = (chosen: Row | undefined): HTMLSelectElement => {
      const options = runs.map((run) => el('option', { value: String(run['number']) }, label_of(run)));
      const select = el('select', { multiple: '', size: String(Math.min(8, options.length)) }, ...options);
      choose(select, String(chosen?.['number']));
      return select;
    };
    this.before = choice(runs[1]);
    this.after = choice(runs[0]);
    const go = el('button', { type: 'button' }, 'compare');
    go.addEventListener('click', () => this.go());
    const swap = el('button', { type: 'button' }, 'swap');
    swap.addEventListener('click', () => {
      const before = chosen_in(this.before);
      choose(this.before, chosen_in(this.after));
      choose(this.after, before);
    });
    const controls: Child[] =
      runs.length < 2
        ? [el('p', { class: 'note' }, 'Comparing takes two runs that have a result.')]
        : [
            el(
              'p',
              { class: 'note' },
              'Faster or slower, by how much more than runs differ anyway, and why: what ',
              el('code', {}, 'llmprof diff'),
              ' says. Several runs a side (Ctrl or Shift) are repeats, which tell more.',
            ),
            el(
              'div',
              { class: 'controls sides' },
              el('label', { class: 'choice' }, 'before ', this.before),
              el('label', { class: 'choice' }, 'after ', this.after),
              el('div', { class: 'controls' }, go, swap),
            ),
          ];
    this.section = page.section('compare', 'Compare runs', ...controls, this.status, this.shown);
    page.route('compare', (rest) => {
      const [before = '', after = ''] = rest.split('/');
      const known = (numbers: string): boolean =>
        numbers.split(',').every((number) => runs.some((run) => String(run['number']) === number));
      if (rest !== '' && known(before) && known(after)) void this.see_why(before, after);
      else if (rest !== '') this.status.textContent = 'One of these runs is not there, or has no result.';
      return this.section;
    });
  }

  private go(): void {
    const [before, after] = [chosen_in(this.before), chosen_in(this.after)];
    if (before === '' || after === '') {
      this.status.textContent = 'Choose a run before and a run after.';
      return;
    }
    this.shown.replaceChildren();
    this.status.textContent = 'Reading the recordings: seconds, of large ones minutes…';
    location.assign(`/diff/${before}/${after}`);
  }

  /** The server has sent here because there is no comparison; if there is one after all, on to it. */
  private async see_why(before: string, after: string): Promise<void> {
    choose(this.before, before);
    choose(this.after, after);
    const asked = ++this.asked;
    this.status.textContent = 'reading…';
    this.shown.replaceChildren();
    try {
      await get(`/api/diff/${before}/${after}`);
      if (asked === this.asked) location.replace(`/diff/${before}/${after}`);
    } catch (error) {
      if (asked === this.asked) await this.without_verdict(before, after, asked, error);
    }
  }

  private async without_verdict(before: string, after: string, asked: number, error: unknown): Promise<void> {
    const why = error instanceof Error ? error.message : String(error);
    this.status.textContent = `There is no verdict: ${why}`;
    if (before.includes(',') || after.includes(',')) return;
    try {
      const [a, b] = await Promise.all([before, after].map((number) => get(`/api/runs/${number}/result`)));
      if (asked === this.asked && a && b) this.draw(before, after, a, b);
    } catch {
      // A result that cannot be read has no figures; why there is no verdict stands there.
    }
  }

  private draw(before: string, after: string, a: Row, b: Row): void {
    if (parts_of(a) !== parts_of(b) || parts_of(a).length === 0) {
      this.shown.append(el('p', { class: 'note' }, kNothing));
      return;
    }
    const fields = new ChangeFields(this.page.result, 'compare');
    for (const part of parts_of(a)) {
      const rows = paired(part.columns, part.unit, part.figures(a), part.figures(b));
      const size = (row: Row): number => Math.abs(number_of(row[`difference_${part.unit}`]) ?? 0);
      const known = rows.filter((row) =>
        [row[`before_${part.unit}`], row[`after_${part.unit}`]].some((value) => (number_of(value) ?? 0) !== 0),
      );
      if (part.by_size) known.sort((a, b) => size(b) - size(a));
      if (known.length === 0) continue;
      const columns = [
        ...part.columns,
        `before_${part.unit}`,
        `after_${part.unit}`,
        `difference_${part.unit}`,
        'change_frac',
      ];
      const caption = `${part.title}: run ${before} before, run ${after} after`;
      this.shown.append(
        el('h3', {}, part.title),
        data_table({ id: `compare-${part.id}`, caption, rows: known, fields, columns, bare: known.length < 6 }).root,
      );
    }
    if (!this.shown.hasChildNodes()) {
      this.shown.append(el('p', { class: 'note' }, kNothing));
      return;
    }
    this.shown.prepend(
      el(
        'p',
        { class: 'note' },
        'The figures of both results, run ',
        el('a', { href: `/runs/${Number(before)}` }, before),
        ' before and run ',
        el('a', { href: `/runs/${Number(after)}` }, after),
        ' after. What is not known of one of them stands as –. Whether a change is more than noise they do not say.',
      ),
    );
  }
}
