// What was measured: cases with sweeps over their axes and a roofline, comparisons, ceilings.
import { el, shortened } from '../dom';
import { format_ms, format_percent, format_rate } from '../format';
import { link_to, text_columns, type Page } from '../page';
import { plot } from '../plot';
import { number_of, row_of, rows_of, text_of, type Row } from '../result';
import { roofline_chart, type Roof } from './roofline';

/** "m=16 n=4096" or "M16 N4096": axes and values of a shape. */
export function axes_of(shape: string): Map<string, number> {
  const axes = new Map<string, number>();
  for (const match of shape.matchAll(/([A-Za-z_][A-Za-z_]*)\s*=?\s*(\d+(?:\.\d+)?)/g))
    axes.set((match[1] as string).toLowerCase(), Number(match[2]));
  return axes;
}

interface Sweep {
  name: string;
  axis: string;
  rows: [number, Row][];
}

/** Cases that differ in one axis alone, three of them at least. */
export function sweeps_of(cases: Row[]): Sweep[] {
  const groups = new Map<string, Sweep>();
  for (const row of cases) {
    if (number_of(row['median_us']) === null) continue;
    const axes = axes_of(text_of(row['shape']));
    for (const [axis, value] of axes) {
      const rest = [...axes]
        .filter(([other]) => other !== axis)
        .map(([other, size]) => `${other}=${size}`)
        .join(' ');
      const name = [row['name'], row['variant'], row['dtype'], row['regime'], rest].filter((part) => part).join(' ');
      const key = `${axis} ${name}`;
      const sweep = groups.get(key) ?? { name, axis, rows: [] };
      sweep.rows.push([value, row]);
      groups.set(key, sweep);
    }
  }
  return [...groups.values()].filter((sweep) => new Set(sweep.rows.map(([value]) => value)).size >= 3);
}

function sweep_charts(cases: Row[]): HTMLElement[] {
  const sweeps = sweeps_of(cases);
  const axes = [...new Set(sweeps.map((sweep) => sweep.axis))];
  return axes.flatMap((axis) => {
    const own = sweeps.filter((sweep) => sweep.axis === axis).slice(0, 12);
    const x = [...new Set(own.flatMap((sweep) => sweep.rows.map(([value]) => value)))].sort((a, b) => a - b);
    const logarithmic = (x[0] ?? 0) > 0 && (x[x.length - 1] ?? 0) / (x[0] ?? 1) >= 8;
    const figures: [string, string, (value: number) => string][] = [
      ['median time', 'median_us', (value) => format_ms(value / 1e3)],
      ['TFLOP/s', 'tflops', format_rate],
    ];
    return figures
      .filter(([, field]) => own.some((sweep) => sweep.rows.some(([, row]) => number_of(row[field]) !== null)))
      .map(([title, field, format]) =>
        plot({
          name: `${title} over ${axis}`,
          x,
          x_label: axis,
          x_format: (value) => String(Math.round(value)),
          logarithmic_x: logarithmic,
          series: own.map((sweep) => ({
            label: sweep.name,
            format,
            values: x.map((value) => number_of(sweep.rows.find(([at]) => at === value)?.[1][field])),
          })),
        }),
      );
  });
}

function device_section(page: Page): void {
  page.claim('device');
  const device = row_of(page.data['device']);
  if (device) page.section('device', 'Device', ...page.record('device', device));
}

export function add_bench(page: Page): void {
  page.claim('cases', 'model_steps');
  const cases = rows_of(page.data['cases']);
  const not_passed = cases.filter((row) => row['status'] !== 'passed').length;
  const points = cases.flatMap((row) => {
    const [intensity, tflops] = [number_of(row['intensity']), number_of(row['tflops'])];
    if (!intensity || !tflops) return [];
    const [name, shape] = [text_of(row['name']), text_of(row['shape'])];
    const of_ceiling = number_of(row['of_ceiling_frac']);
    const about = `${shortened(name)} ${shortened(shape)}: ${format_rate(tflops)} TFLOP/s at ${format_rate(intensity)} FLOP/B${of_ceiling === null ? '' : `, ${format_percent(of_ceiling)} of its ceiling`}`;
    return [
      {
        name,
        group: name,
        intensity,
        tflops,
        weight: (number_of(row['median_us']) ?? 0) / 1e3,
        href: link_to('cases', { name, shape, regime: text_of(row['regime']) }),
        about,
        roof: of_ceiling ? tflops / of_ceiling : null,
      },
    ];
  });
  const steps = rows_of(page.data['model_steps']);
  page.section(
    'cases',
    'Cases',
    el(
      'p',
      {},
      `${cases.length} rows, ${not_passed === 0 ? 'all of them passed their check' : `${not_passed} of them did not pass`}.`,
    ),
    page.table({
      id: 'cases',
      caption: 'Measured cases, one row per regime',
      rows: cases,
      columns: [
        'name',
        'variant',
        'shape',
        'dtype',
        'regime',
        'status',
        'backend',
        'median_us',
        'min_us',
        'p99_us',
        'iqr_frac',
        'tflops',
        'gbs',
        'of_ceiling_frac',
        'of_datasheet_frac',
        'bound',
      ],
      group_by: text_columns(cases),
    }),
  );
  const charts = sweep_charts(cases);
  page.section(
    'sweeps',
    'Sweeps',
    ...(charts.length
      ? charts
      : [
          el(
            'p',
            { class: 'missing' },
            'No three cases differ in one axis alone (llmprof bench NAME --sweep AXIS=...).',
          ),
        ]),
  );
  page.section(
    'roofline',
    'Roofline',
    points.length
      ? roofline_chart([{ name: 'cases', points }], [])
      : el('p', { class: 'missing' }, 'No case has arithmetic.'),
    el('p', {}, 'The numbers: ', el('a', { href: '#cases' }, 'cases'), '.'),
  );
  if (steps.length)
    page.section(
      'model_steps',
      'Steps of the model',
      page.table({
        id: 'model_steps',
        caption: 'Parts of the model’s steps, measured one by one',
        rows: steps,
        group_by: ['step', 'part'],
        sums: ['total_us', 'calls'],
      }),
    );
  device_section(page);
}

export function add_comparison(page: Page): void {
  page.claim('rows');
  const rows = rows_of(page.data['rows']);
  const count = new Map<string, number>();
  for (const row of rows) count.set(text_of(row['verdict']), (count.get(text_of(row['verdict'])) ?? 0) + 1);
  page.section(
    'rows',
    'Comparison',
    el('p', {}, [...count].map(([verdict, n]) => `${verdict}: ${n}`).join(' · ') || 'No rows were compared.'),
    page.table({
      id: 'rows',
      caption: 'Two runs compared case by case',
      rows,
      columns: [
        'name',
        'variant',
        'shape',
        'dtype',
        'regime',
        'old_us',
        'new_us',
        'ratio',
        'ratio_low',
        'ratio_high',
        'verdict',
        'reason',
      ],
      group_by: ['verdict', 'name', 'regime', 'dtype'],
    }),
  );
}

export function add_peaks(page: Page): void {
  const tables: [string, string, string, string[] | undefined][] = [
    [
      'flops',
      'Arithmetic',
      'Measured arithmetic ceilings',
      [
        'dtype',
        'path',
        'tflops',
        'shape',
        'of_datasheet_frac',
        'of_clock_frac',
        'backend',
        'status',
        'iqr_frac',
        'sm_clock_mhz',
        'power_w',
      ],
    ],
    [
      'bandwidth',
      'Bandwidth',
      'Measured bandwidths',
      ['kind', 'gbs', 'bytes', 'of_datasheet_frac', 'backend', 'status', 'iqr_frac'],
    ],
    ['latency', 'Fixed costs', 'Measured fixed costs', ['kind', 'us', 'backend', 'status', 'iqr_frac']],
    ['ridge', 'Ridge points', 'Ridge points of the roofline', undefined],
    ['recorder', 'Recorder', 'What llmprof run costs a program on this machine', undefined],
  ];
  const ridge = rows_of(page.data['ridge']);
  const roofs = ridge.flatMap((row): Roof[] => {
    const [tflops, gbs] = [number_of(row['tflops']), number_of(row['gbs'])];
    const measured = row['provenance'] === 'measured';
    return tflops && gbs
      ? [{ name: `${text_of(row['dtype'])} ${measured ? 'measured' : 'data sheet'}`, tflops, gbs, measured }]
      : [];
  });
  const points = ridge.flatMap((row) => {
    const [intensity, tflops] = [number_of(row['flop_per_byte']), number_of(row['tflops'])];
    const name = text_of(row['dtype']);
    return intensity && tflops
      ? [
          {
            name,
            group: text_of(row['provenance']),
            intensity,
            tflops,
            weight: 1,
            href: link_to('ridge', { dtype: name }),
            about: `${name}, ${text_of(row['provenance'])}: ridge at ${format_rate(intensity)} FLOP/B, ${format_rate(tflops)} TFLOP/s`,
          },
        ]
      : [];
  });
  page.section(
    'roofline',
    'Roofline',
    points.length
      ? roofline_chart([{ name: 'ridge points', points }], roofs)
      : el('p', { class: 'missing' }, 'No ridge point is known.'),
  );
  for (const [key, title, caption, columns] of tables) {
    page.claim(key);
    const rows = rows_of(page.data[key]);
    page.section(
      key,
      title,
      rows.length
        ? page.table({ id: key, caption, rows, ...(columns ? { columns } : {}) })
        : el('p', { class: 'missing' }, 'Not measured; see diagnostics.'),
    );
  }
  device_section(page);
}
