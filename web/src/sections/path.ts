// Where a step's time goes: from measured to ideal, and the critical path. Per step, in the stage's mean recorded step.
import { bar_table, type Bar } from '../bars';
import { el, shortened } from '../dom';
import { link_to, why_missing, type Page } from '../page';
import { number_of, rows_of, text_of, type Row } from '../result';
import { judged_stages, processor } from './answer';

const same = (row: Row, stage: Row): boolean =>
  row['stage'] === stage['name'] && (row['device'] === undefined || row['device'] === stage['device']);

/** Idle time by cause, overlap, and what kernels of known shape lose against their roofs: what is left is the ideal. */
function to_ideal(page: Page, stage: Row): Bar[] {
  const { data } = page;
  const name = text_of(stage['name']);
  const recorded = (number_of(stage['wall_ms']) ?? 0) - (number_of(stage['not_recorded_ms']) ?? 0);
  const busy = number_of(stage['gpu_busy_ms']);
  if (recorded <= 0 || busy === null) return [];
  // Of steps of which only parts were recorded these are fewer than count.
  const steps = ((number_of(stage['count']) ?? 1) * recorded) / Math.max(number_of(stage['wall_ms']) ?? 1, 1e-9);
  const per_step = (ms: number): number => ms / Math.max(steps, 1e-9);
  let left = per_step(recorded);
  const bars: Bar[] = [
    {
      label: 'measured step (mean)',
      from: 0,
      to: left,
      kind: 'sum',
      sum: true,
      tip: 'measured: mean of the recorded steps',
      link: link_to('steps', { stage: name }),
    },
  ];
  const take = (label: string, ms: number, kind: string, link: string, tip: string, note = ''): void => {
    bars.push({ label, from: left, to: left - ms, kind, link, tip, note });
    left -= ms;
  };
  const idle = rows_of(data['idle'])
    .filter((row) => same(row, stage))
    .sort((a, b) => (number_of(b['total_ms']) ?? 0) - (number_of(a['total_ms']) ?? 0));
  for (const row of idle) {
    const ms = number_of(row['total_ms']) ?? 0;
    const cause = text_of(row['cause']);
    const where = text_of(row['top_python']) || text_of(row['top_operator']) || text_of(row['top_api']);
    if (ms > 0)
      take(
        `${processor(data)} idle: ${cause}`,
        per_step(ms),
        'idle',
        link_to('idle', { stage: name, cause }),
        'measured: idle time by cause',
        where ? `mostly in ${shortened(where, 60)}` : '',
      );
  }
  bars.push({
    label: `${processor(data)} busy`,
    from: 0,
    to: left,
    kind: 'sum',
    sum: true,
    tip: 'measured: overlap of streams counted once',
    link: `#stage/${encodeURIComponent(name)}`,
  });
  const gains = new Map<string, number>();
  for (const row of rows_of(data['roofline'])) {
    const gain = number_of(row['gain_ms']) ?? 0;
    const category = text_of(row['category']);
    if (row['stage'] === name && gain > 0) gains.set(category, (gains.get(category) ?? 0) + gain);
  }
  // The roofline has no device column: with several, each stage's kernels are shared out by busy time.
  const all_busy = rows_of(data['stages'])
    .filter((one) => one['name'] === name)
    .reduce((sum, one) => sum + (number_of(one['gpu_busy_ms']) ?? 0), 0);
  const share = all_busy > 0 ? busy / all_busy : 1;
  for (const [category, gain] of [...gains].sort((a, b) => b[1] - a[1])) {
    const ms = Math.min(left, per_step(gain * share));
    take(
      `${category}: above its roof`,
      ms,
      'loss',
      link_to('roofline', { stage: name, category }),
      'formula: measured time less the least time at the roof, of kernels with known shapes',
    );
  }
  bars.push({
    label: 'ideal',
    from: 0,
    to: left,
    kind: 'ideal',
    sum: true,
    tip: 'kernels of known shape at their roof, all others as they are, one behind the other',
  });
  return bars;
}

const kPath: [string, string, string][] = [
  ['host_code_ms', 'host code', 'host'],
  ['no_input_ms', 'no input', 'none'],
  ['cuda_calls_ms', 'CUDA calls', 'call'],
  ['launch_latency_ms', 'launch latency', 'idle'],
  ['gpu_work_ms', 'GPU work', 'work'],
  ['gpu_gap_ms', 'GPU gaps', 'loss'],
  ['wake_up_ms', 'waking up', 'call'],
  ['unexplained_ms', 'unexplained', 'none'],
];

function along_path(page: Page, path: Row): Bar[] {
  const step = number_of(path['step_ms']) ?? 0;
  const work = rows_of(page.data['critical_path_work']).filter(
    (row) => row['stage'] === path['stage'] && row['device'] === path['device'],
  );
  const stage = text_of(path['stage']);
  let at = 0;
  const bars: Bar[] = [
    {
      label: 'step (mean)',
      from: 0,
      to: step,
      kind: 'sum',
      sum: true,
      tip: 'measured: mean window of the steps that were replayed',
    },
  ];
  for (const [field, label, kind] of kPath) {
    const ms = number_of(path[field]) ?? 0;
    if (ms === 0) continue;
    const start = at;
    bars.push({
      label,
      from: at,
      to: at + ms,
      kind,
      tip: 'measured, along replayed dependencies',
      link: field === 'host_code_ms' ? link_to('host', { stage }) : null,
    });
    at += ms;
    if (field !== 'gpu_work_ms') continue;
    let inner = start;
    for (const row of work) {
      const part = number_of(row['ms']) ?? 0;
      const category = text_of(row['category']);
      bars.push({
        label: `– ${category}`,
        from: inner,
        to: inner + part,
        kind: 'part',
        tip: 'part of GPU work',
        link: link_to('categories', { stage, category }),
      });
      inner += part;
    }
  }
  return bars;
}

export function add_path(page: Page): void {
  page.claim('critical_path', 'critical_path_work');
  const paths = rows_of(page.data['critical_path']);
  const blocks: HTMLElement[] = [];
  for (const stage of judged_stages(page.data)) {
    const bars = to_ideal(page, stage);
    const path = paths.find((row) => same(row, stage));
    if (bars.length === 0 && !path) continue;
    const name = text_of(stage['name']);
    const several = judged_stages(page.data).some((one) => one !== stage && one['name'] === stage['name']);
    const title = several ? `${name}, device ${String(stage['device'])}` : name;
    const block = el('div', { class: 'block', 'data-path': name }, el('h3', { tabindex: -1 }, shortened(title)));
    if (bars.length)
      block.append(bar_table(`${shortened(title)}: from the measured step to the ideal one`, 'part', bars));
    if (path) {
      block.append(
        bar_table(`${shortened(title)}: the critical path of a step`, 'on the path', along_path(page, path)),
      );
      const off = number_of(path['error_worst_frac']);
      const guessed = text_of(path['not_recorded']);
      block.append(
        el(
          'p',
          { class: 'note' },
          off === null
            ? 'No step is left over to judge the replay by.'
            : `Replayed steps are at most ${(100 * off).toFixed(1)} % off.`,
          guessed ? ` Guessed: ${guessed}.` : '',
        ),
      );
    }
    blocks.push(block);
  }
  const table = paths.length
    ? page.table({ id: 'path', path: 'critical_path', caption: 'Critical paths: all figures', rows: paths, bare: true })
    : null;
  page.section(
    'path',
    'From measured to ideal',
    ...(blocks.length ? blocks : [why_missing(page, /idle|wait|path|kernel/i)]),
    table,
  );
  page.route('path', (name) => {
    const block = [...document.querySelectorAll<HTMLElement>('#path [data-path]')].find(
      (one) => one.dataset['path'] === name,
    );
    return block ?? document.getElementById('path');
  });
}
