// A model by its configuration, layer by layer; and what works on a machine.
import { el, shortened } from '../dom';
import { format_count, format_ms, format_number } from '../format';
import { text_columns, type Page } from '../page';
import { number_of, row_of, rows_of, text_of, texts_of, type Row } from '../result';

function head(page: Page): HTMLElement {
  const { data } = page;
  const figure = (name: string, value: number | null, unit: string, href: string): HTMLElement =>
    el(
      'div',
      { class: 'figure' },
      el('dt', {}, name),
      el(
        'dd',
        {},
        value === null
          ? 'not known'
          : el(
              'a',
              { href, class: 'value', 'data-tip': 'formula of the model’s configuration' },
              unit === '' ? format_count(value) : format_number(value, unit),
            ),
        el('span', { class: 'from' }, 'formula'),
      ),
    );
  const params = row_of(data['params']);
  const memory = row_of(data['memory']);
  return el(
    'dl',
    { class: 'figures' },
    figure('parameters', number_of(params?.['total']), '', '#params'),
    figure('weights', number_of(memory?.['weights_bytes']), 'bytes', '#memory'),
    figure('KV cache', number_of(memory?.['kv_bytes']), 'bytes', '#memory'),
    figure('memory, all', number_of(memory?.['total_bytes']), 'bytes', '#memory'),
  );
}

function bounds(gpu: Row | null): HTMLElement | null {
  const rows = rows_of(gpu?.['stages']);
  if (!gpu || rows.length === 0) return null;
  const items = rows.map((row) => {
    const least = number_of(row['least_ms']);
    return el(
      'li',
      {},
      `${text_of(row['kind'])}: `,
      least === null ? 'not known' : `at least ${format_ms(least)}, by ${text_of(row['limit'])}`,
    );
  });
  const fits = row_of(gpu['memory'])?.['fits'];
  return el(
    'div',
    {},
    el('h3', {}, `On ${shortened(text_of(gpu['name']))}, by its data sheet`),
    el('p', {}, fits === null ? '' : fits ? 'One GPU holds it.' : 'One GPU does not hold it.'),
    el('ul', {}, ...items),
  );
}

export function add_model(page: Page): void {
  page.claim(
    'stages',
    'operators',
    'params',
    'notes',
    'gpu',
    'memory',
    'weights',
    'kv_cache',
    'id',
    'architecture',
    'dtype',
    'layers',
    'request_shape',
  );
  const { data } = page;
  const gpu = row_of(data['gpu']);
  const shape = row_of(data['request_shape']);
  const said = shape
    ? Object.entries(shape)
        .map(([name, value]) => `${name} ${String(value)}`)
        .join(', ')
    : '';
  page.section(
    'answer',
    'Answer',
    el(
      'p',
      { class: 'facts' },
      `${shortened(text_of(data['architecture']))} · ${String(data['layers'])} layers · ${text_of(data['dtype'])} · ${said}`,
    ),
    head(page),
    bounds(gpu),
    ...texts_of(data['notes']).map((note) => el('p', { class: 'note' }, shortened(note, 1000))),
  );
  const stages = rows_of(data['stages']);
  page.section(
    'stages',
    'Stages',
    page.table({ id: 'stages', caption: 'What one pass of a stage costs', rows: stages, bare: true }),
  );
  const operators = rows_of(data['operators']);
  page.section(
    'operators',
    'Operators by layer',
    page.table({
      id: 'operators',
      caption: 'Operators, layer by layer, in order of execution',
      rows: operators.map((row) => ({
        ...row,
        layer: number_of(row['layer']) === null ? 'outside' : `layer ${String(row['layer'])}`,
      })),
      columns: [
        'name',
        'layer',
        'stage',
        'shape',
        'flops',
        'bytes',
        'intensity',
        'weight_bytes',
        'kv_read_bytes',
        'activation_bytes',
      ],
      sums: ['flops', 'bytes', 'weight_bytes', 'kv_read_bytes', 'kv_write_bytes', 'activation_bytes'],
      group_by: ['layer', 'stage', 'name'],
      link: (column, row) =>
        column === 'layer'
          ? `#operators?${new URLSearchParams({ layer: text_of(row['layer']), stage: text_of(row['stage']) }).toString()}`
          : null,
    }),
  );
  const params = row_of(data['params']);
  const layers = rows_of(params?.['by_layer']);
  page.section(
    'params',
    'Parameters',
    ...page.record('params', { ...params, by_layer: [] }, 'All layers'),
    layers.length
      ? page.table({
          id: 'params',
          path: 'params.by_layer',
          caption: 'Parameters by layer',
          rows: layers,
          group_by: ['kind'],
          sums: ['total', 'active', 'attention', 'mlp', 'router', 'experts', 'norms'],
        })
      : null,
  );
  const parts = ['memory', 'weights', 'kv_cache'].flatMap((key) => {
    const record = row_of(data[key]);
    return record ? page.record(key, record) : [];
  });
  page.section('memory', 'Memory', ...parts);
  if (gpu) page.section('gpu', 'GPU', ...page.record('gpu', gpu));
}

export function add_doctor(page: Page): void {
  page.claim('checks', 'conclusion');
  const checks = rows_of(page.data['checks']);
  page.section(
    'checks',
    'What works here',
    el('p', {}, shortened(text_of(page.data['conclusion']), 1000)),
    page.table({
      id: 'checks',
      caption: 'What a recording needs, and whether it is here',
      rows: checks,
      group_by: text_columns(checks),
    }),
  );
}
