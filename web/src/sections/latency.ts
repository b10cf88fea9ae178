// Latencies: distributions, every step as a dot, step times without the recorder, and what recording cost.
import { el } from '../dom';
import { format_ms } from '../format';
import { link_to, text_columns, why_missing, type Page } from '../page';
import { plot, type Series } from '../plot';
import { number_of, row_of, rows_of, text_of, type Row } from '../result';
import { description } from '../table';

// Of a step, in stage_steps: medians are seen first.
const kFigures = ['step', 'gpu_busy', 'gpu_idle', 'kernels', 'copies'];

/** Every step as a dot, a colour for each stage; those of warm-up hollow. */
function step_dots(steps: Row[]): HTMLElement {
  const start = Math.min(...steps.map((step) => number_of(step['start_unix_ns']) ?? Infinity));
  const sorted = [...steps].sort((a, b) => (number_of(a['start_unix_ns']) ?? 0) - (number_of(b['start_unix_ns']) ?? 0));
  const group = (step: Row): string => text_of(step['stage']) + (step['warm_up'] === true ? ' [warm-up]' : '');
  const totals = new Map<string, number>();
  for (const step of sorted) totals.set(group(step), (totals.get(group(step)) ?? 0) + 1);
  const names = [...totals].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const values = (name: string, field: (step: Row) => number | null): (number | null)[] =>
    sorted.map((step) => (group(step) === name ? field(step) : null));
  const series: Series[] = names.map((name) => ({
    label: name,
    dots: true,
    hollow: name.endsWith('[warm-up]'),
    format: format_ms,
    values: values(name, (step) => number_of(step['undisturbed_ms']) ?? (number_of(step['duration_ns']) ?? 0) / 1e6),
  }));
  return plot({
    name: 'Every step: how long it took, without the recorder where that is known',
    x: sorted.map((step) => ((number_of(step['start_unix_ns']) ?? 0) - start) / 1e6),
    x_label: 'since the first',
    x_format: format_ms,
    series,
    pick: (at) => {
      const step = sorted[at];
      if (step)
        location.hash = link_to('steps', {
          stage: text_of(step['stage']),
          start_unix_ns: String(step['start_unix_ns']),
        });
    },
  });
}

function summaries(latency: Row): Row[] {
  return Object.entries(latency).flatMap(([name, value]) => {
    const summary = row_of(value);
    return summary && typeof summary['n'] === 'number'
      ? [{ figure: name.replace(/_ms$/, '').toUpperCase(), ...summary }]
      : [];
  });
}

export function add_latency(page: Page): void {
  page.claim('latency', 'steps', 'stage_steps', 'undisturbed');
  const latency = row_of(page.data['latency']);
  const headline = row_of(latency?.['headline']);
  const distributions = latency ? summaries(latency) : [];
  const undisturbed = rows_of(page.data['undisturbed']);
  page.section(
    'latency',
    'Latencies',
    latency ? null : why_missing(page, /TTFT|TPOT|latenc|token/i),
    distributions.length
      ? page.table({
          id: 'distributions',
          path: 'latency.ttft_ms',
          caption: 'Distributions, in ms',
          rows: distributions,
          bare: true,
        })
      : null,
    distributions.some((row) => row['figure'] === 'TPOT')
      ? el(
          'p',
          { class: 'note' },
          'TPOT is here the mean ITL of each request, a value a request; that of the first lines is the median of steady steps.',
        )
      : null,
    headline
      ? el(
          'details',
          {},
          el('summary', {}, 'all figures of the headline'),
          description('Headline', headline, page.fields('latency.headline')),
        )
      : null,
    undisturbed.length
      ? page.table({ id: 'undisturbed', caption: 'Step times without the recorder', rows: undisturbed, bare: true })
      : null,
  );
  const steps = rows_of(page.data['steps']);
  const of_stages = rows_of(page.data['stage_steps']);
  page.section(
    'steps',
    'Steps',
    of_stages.length
      ? page.table({
          id: 'stage_steps',
          caption: 'A step of each stage, with the recorder: medians and means over its recorded steps',
          rows: of_stages,
          columns: [
            'stage',
            'device',
            'recorded_steps',
            'all_steps',
            ...kFigures.map((figure) => `${figure}_p50_ms`),
            ...kFigures.map((figure) => `${figure}_mean_ms`),
          ],
          bare: true,
        })
      : null,
    steps.length ? step_dots(steps) : why_missing(page, /step/i),
    steps.length
      ? page.table({
          id: 'steps',
          caption: 'Every step',
          rows: steps,
          group_by: text_columns(steps),
          sums: ['duration_ns'],
        })
      : null,
  );
}
