// Where the time goes, as tables: operators, kernels, categories, idle causes, the host.
import { el } from '../dom';
import { link_to, text_columns, why_missing, type Page } from '../page';
import { short_kernel_name } from '../kernel_name';
import { rows_of, text_of, type Row } from '../result';
import { stage_address } from './answer';

const to_stage = (column: string, row: Row): string | null =>
  column === 'stage' ? stage_address(text_of(row['stage'])) : null;

export function add_operators(page: Page): void {
  page.claim('operators');
  const rows = rows_of(page.data['operators']);
  page.section(
    'operators',
    'Operators',
    rows.length
      ? page.table({
          id: 'operators',
          caption: 'Framework operators by name and stage',
          rows,
          columns: [
            'name',
            'stage',
            'calls',
            'gpu_total_ms',
            'gpu_self_ms',
            'cpu_total_ms',
            'cpu_self_ms',
            'shapes',
            'flops',
            'memory_bytes',
          ],
          // Not the totals: those of enclosed operators are in them.
          sums: ['gpu_self_ms', 'cpu_self_ms', 'calls', 'flops', 'memory_bytes'],
          group_by: ['stage', 'name'],
          link: to_stage,
        })
      : why_missing(page, /operator|python|framework/i),
  );
}

export function add_kernels(page: Page): void {
  page.claim('kernels_topk', 'launch_sites', 'launch_places');
  const rows = rows_of(page.data['kernels_topk']);
  const sites = rows_of(page.data['launch_sites']);
  const code = rows_of(page.data['launch_places']);
  const sums = ['total_ms', 'calls', 'share', 'flops', 'bytes'];
  page.section(
    'kernels',
    'Kernels',
    rows.length
      ? page.table({
          id: 'kernels',
          path: 'kernels_topk',
          caption: 'Kernels and copies by name, launch, shape and stage',
          rows,
          columns: [
            'name',
            'category',
            'stage',
            'calls',
            'total_ms',
            'share',
            'mean_ms',
            'shape',
            'tflops',
            'gbs',
            'bound',
            'of_roof_frac',
            'occupancy_frac',
            'provenance',
          ],
          sums,
          short: { name: short_kernel_name },
          group_by: ['category', 'stage', 'name', 'bound', 'dtype', 'provenance'],
          link: (column, row) =>
            column === 'name'
              ? link_to('kernels', { name: text_of(row['name']), stage: text_of(row['stage']) })
              : to_stage(column, row),
          describe: (row) => sites_of(sites, text_of(row['name'])),
        })
      : why_missing(page, /kernel|GPU/i),
    sites.length ? el('h3', {}, 'Where they were launched from') : null,
    sites.length
      ? page.table({
          id: 'launch_sites',
          caption: 'Places from which kernels were seen to be launched',
          rows: sites,
          columns: ['kernel', 'site', 'stacks', 'kernel_stacks', 'kernel_ms', 'share'],
          group_by: text_columns(sites),
          short: { kernel: short_kernel_name },
        })
      : null,
    code.length ? el('h3', {}, 'Python code that launches it') : null,
    code.length
      ? page.table({
          id: 'launch_places',
          caption: 'Device time by the Python code that launches it, estimated from the launches seen',
          rows: code,
          columns: ['place', 'stage', 'gpu_ms_per_step', 'gpu_frac', 'per_step', 'seen'],
          sums: ['gpu_ms_per_step', 'per_step', 'seen'],
          group_by: text_columns(code),
          link: to_stage,
        })
      : null,
  );
}

function sites_of(sites: Row[], kernel: string): HTMLElement | null {
  const own = sites.filter((site) => site['kernel'] === kernel);
  return own.length
    ? el('p', {}, 'Launched from: ', ...own.map((site) => el('code', {}, text_of(site['site']).slice(0, 400) + ' ')))
    : null;
}

export function add_categories(page: Page): void {
  page.claim('categories');
  const rows = rows_of(page.data['categories']);
  page.section(
    'categories',
    'Categories',
    rows.length
      ? page.table({
          id: 'categories',
          caption: 'Where the device time goes: operation, time, share, bottleneck',
          rows,
          columns: [
            'category',
            'stage',
            'kernels',
            'time_ms',
            'share',
            'wall_share',
            'mean_us',
            'flops',
            'bytes',
            'of_roof_frac',
            'bottleneck',
          ],
          sums: ['time_ms', 'kernels', 'flops', 'bytes'],
          group_by: ['category', 'stage', 'bottleneck'],
          link: (column, row) =>
            column === 'category'
              ? link_to('kernels', { category: text_of(row['category']), stage: text_of(row['stage']) })
              : to_stage(column, row),
        })
      : why_missing(page, /kernel|GPU/i),
  );
}

export function add_idle(page: Page): void {
  page.claim('idle', 'idle_sites', 'host', 'host_places');
  const idle = rows_of(page.data['idle']);
  const more = (
    id: string,
    title: string,
    columns: string[] | null,
    link?: (column: string, row: Row) => string | null,
  ): HTMLElement | null => {
    const rows = rows_of(page.data[id]);
    if (rows.length === 0) return null;
    return el(
      'div',
      { class: 'block', id },
      el('h3', { tabindex: -1 }, title),
      page.table({
        id,
        caption: title,
        rows,
        group_by: text_columns(rows),
        sums: ['total_ms', 'gaps'],
        ...(columns ? { columns } : {}),
        link: link ?? to_stage,
      }),
    );
  };
  page.section(
    'idle',
    'Idle causes',
    idle.length
      ? page.table({
          id: 'idle',
          caption: 'Idle time by cause and stage',
          rows: idle,
          columns: [
            'cause',
            'stage',
            'gaps',
            'total_ms',
            'wall_share',
            'mean_us',
            'top_operator',
            'top_api',
            'top_python',
          ],
          sums: ['total_ms', 'gaps'],
          group_by: ['cause', 'stage'],
          link: (column, row) =>
            column === 'cause' ? link_to('idle_sites', { stage: text_of(row['stage']) }) : to_stage(column, row),
        })
      : why_missing(page, /idle|wait/i),
    more('idle_sites', 'Where the host was meanwhile', null),
    more('host', 'Host time against device time', null),
    more('host_places', 'Python code that waits, copies, allocates or keeps the device waiting', [
      'stage',
      'kind',
      'place',
      'per_step',
      'host_ms_per_step',
    ]),
  );
}
