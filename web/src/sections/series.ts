// Device memory, and readings beside the program, over time.
import { el } from '../dom';
import { format_ms } from '../format';
import { name_of } from '../fields';
import { text_columns, why_missing, type Page } from '../page';
import { plot } from '../plot';
import { number_of, row_of, rows_of, type Row } from '../result';
import { description, data_table } from '../table';

function chart(page: Page, path: string, title: string, rows: Row[], columns: string[]): HTMLElement | null {
  const known = columns.filter((column) => rows.some((row) => number_of(row[column]) !== null));
  if (known.length === 0) return null;
  const fields = page.fields(path);
  return plot({
    name: title,
    x: rows.map((row) => number_of(row['time_ms']) ?? 0),
    x_label: 'since the start',
    x_format: format_ms,
    series: known.map((column) => ({
      label: name_of(column),
      values: rows.map((row) => number_of(row[column])),
      format: (value) => fields.show(column, value) ?? '',
    })),
    height: 170,
  });
}

const scalars = (record: Row): Row =>
  Object.fromEntries(Object.entries(record).filter(([, value]) => !Array.isArray(value)));

export function add_memory(page: Page): void {
  page.claim('memory');
  const memory = row_of(page.data['memory']);
  if (!memory) {
    page.section('memory', 'Memory', why_missing(page, /memory/i));
    return;
  }
  const series = rows_of(memory['series']);
  const operators = rows_of(memory['operators']);
  page.section(
    'memory',
    'Memory',
    chart(page, 'memory.series', 'Device memory over time', series, ['allocated_bytes', 'reserved_bytes']),
    description('By recorded allocations', scalars(memory), page.fields('memory')),
    operators.length
      ? page.table({
          id: 'memory',
          path: 'memory.operators',
          caption: 'Operators by device memory allocated',
          rows: operators,
          sums: ['allocations', 'bytes'],
        })
      : null,
    series.length
      ? el(
          'details',
          {},
          el('summary', {}, 'device memory over time, as a table'),
          data_table({
            id: 'memory.series',
            caption: 'Device memory over time',
            rows: series,
            fields: page.fields('memory.series'),
          }).root,
        )
      : null,
  );
}

const kCharts: [string, string[]][] = [
  ['Clock', ['sm_clock_mhz']],
  ['Power', ['power_w']],
  ['Temperature', ['temperature_c']],
  ['Hardware counters', ['gr_active_frac', 'sm_active_frac', 'tensor_active_frac', 'dram_frac']],
  ['Memory in use, all processes', ['memory_used_bytes']],
];

export function add_telemetry(page: Page): void {
  page.claim('telemetry');
  const telemetry = row_of(page.data['telemetry']);
  if (!telemetry) {
    page.section('telemetry', 'Readings', why_missing(page, /clock|power|counters/i));
    return;
  }
  const series = rows_of(telemetry['series']);
  const throttle = rows_of(telemetry['throttle']);
  const summaries: Row[] = [];
  const values: Row = {};
  for (const [name, value] of Object.entries(telemetry)) {
    const record = row_of(value);
    if (record) summaries.push({ reading: name_of(name), ...record });
    else if (!Array.isArray(value)) values[name] = value;
  }
  page.section(
    'telemetry',
    'Readings',
    ...kCharts.map(([title, columns]) => chart(page, 'telemetry.series', title, series, columns)),
    summaries.length
      ? data_table({
          id: 'readings',
          caption: 'Readings over the window',
          rows: summaries,
          fields: page.fields('telemetry.power_w'),
          bare: true,
        }).root
      : null,
    throttle.length
      ? data_table({
          id: 'throttle',
          caption: 'Why the clock was held down',
          rows: throttle,
          fields: page.fields('telemetry.throttle'),
          bare: true,
        }).root
      : null,
    description('Over the window', values, page.fields('telemetry')),
    series.length
      ? el(
          'details',
          {},
          el('summary', {}, 'readings over time, as a table'),
          page.table({
            id: 'telemetry',
            path: 'telemetry.series',
            caption: 'Readings over time',
            rows: series,
            group_by: text_columns(series),
          }),
        )
      : null,
  );
}
