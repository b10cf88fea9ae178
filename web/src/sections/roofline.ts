// The roofline: kernels, operators and stages under the roofs of their types, measured and by the data sheet.
import { el, shortened, svg, type Child } from '../dom';
import { format_ms, format_percent, format_rate } from '../format';
import { link_to, why_missing, type Page } from '../page';
import { short_kernel_name } from '../kernel_name';
import { number_of, row_of, rows_of, text_of, type Row } from '../result';

export interface Point {
  name: string;
  group: string; // its colour: the stage
  intensity: number;
  tflops: number;
  weight: number; // ms: its size
  href: string;
  about: string;
  roof?: number | null; // what it could reach, where each point has its own
}
export interface Roof {
  name: string; // bf16, data sheet
  tflops: number;
  gbs: number;
  measured: boolean;
}
export interface Level {
  name: string;
  points: Point[];
}

const kColours = 6;

function ticks(low: number, high: number): number[] {
  const out: number[] = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.floor(Math.log10(high)); ++power) out.push(10 ** power);
  return out;
}

interface Frame {
  width: number;
  height: number;
  x: (intensity: number) => number;
  y: (tflops: number) => number;
  low: [number, number];
  high: [number, number];
}

function frame_of(points: Point[], roofs: Roof[], width: number): Frame {
  const xs = [...points.map((point) => point.intensity), ...roofs.map((roof) => (1000 * roof.tflops) / roof.gbs)];
  const ys = [
    ...points.flatMap((point) => [point.tflops, point.roof ?? point.tflops]),
    ...roofs.map((roof) => roof.tflops),
  ];
  const low: [number, number] = [Math.min(...xs) / 2, Math.min(...ys) / 2];
  const high: [number, number] = [Math.max(...xs) * 3, Math.max(...ys) * 2];
  const height = Math.max(260, Math.min(460, width * 0.55));
  const left = 54;
  const bottom = 40;
  const along = (value: number, from: number, to: number): number =>
    (Math.log10(value) - Math.log10(from)) / (Math.log10(to) - Math.log10(from));
  return {
    width,
    height,
    low,
    high,
    x: (intensity) => left + along(intensity, low[0], high[0]) * (width - left - 10),
    y: (tflops) => height - bottom - along(tflops, low[1], high[1]) * (height - bottom - 10),
  };
}

const tick_text = (value: number): string =>
  value >= 1e4 || value < 1e-3 ? `1e${Math.round(Math.log10(value))}` : String(Number(value.toPrecision(1)));

function axes(frame: Frame): Child[] {
  const out: Child[] = [];
  const bottom = frame.y(frame.low[1]);
  const left = frame.x(frame.low[0]);
  for (const tick of ticks(frame.low[0], frame.high[0])) {
    const x = frame.x(tick).toFixed(1);
    out.push(
      svg('line', { class: 'grid', x1: x, x2: x, y1: frame.y(frame.high[1]), y2: bottom }),
      svg('text', { x, y: bottom + 15, 'text-anchor': 'middle' }, tick_text(tick)),
    );
  }
  for (const tick of ticks(frame.low[1], frame.high[1])) {
    const y = frame.y(tick);
    out.push(
      svg('line', { class: 'grid', x1: left, x2: frame.x(frame.high[0]), y1: y.toFixed(1), y2: y.toFixed(1) }),
      svg('text', { x: left - 6, y: (y + 4).toFixed(1), 'text-anchor': 'end' }, tick_text(tick)),
    );
  }
  out.push(
    svg(
      'text',
      { x: (left + frame.width) / 2, y: frame.height - 6, 'text-anchor': 'middle' },
      'arithmetic intensity, FLOP per byte',
    ),
    svg(
      'text',
      {
        x: 12,
        y: frame.height / 2 - 20,
        'text-anchor': 'middle',
        transform: `rotate(-90 12 ${frame.height / 2 - 20})`,
      },
      'TFLOP/s',
    ),
  );
  return out;
}

function roof_lines(frame: Frame, roofs: Roof[]): Child[] {
  const labels: number[] = [];
  return roofs.flatMap((roof) => {
    const ridge = (1000 * roof.tflops) / roof.gbs;
    const start = Math.max(frame.low[0], (1000 * frame.low[1]) / roof.gbs);
    const from = (intensity: number, tflops: number): string =>
      `${frame.x(intensity).toFixed(1)},${frame.y(tflops).toFixed(1)}`;
    const points = `${from(start, (start * roof.gbs) / 1000)} ${from(ridge, roof.tflops)} ${from(frame.high[0], roof.tflops)}`;
    // Labels of roofs that lie on each other stand below each other.
    let y = frame.y(roof.tflops) - 4;
    while (labels.some((other) => Math.abs(other - y) < 13)) y += 13;
    labels.push(y);
    return [
      svg('polyline', { points, class: roof.measured ? 'roof measured' : 'roof' }),
      svg(
        'text',
        { x: frame.width - 12, y: y.toFixed(1), 'text-anchor': 'end', class: 'roof-name' },
        `${roof.name} ${format_rate(roof.tflops)}`,
      ),
    ];
  });
}

function point_marks(frame: Frame, points: Point[], groups: string[]): SVGElement {
  const most = Math.max(...points.map((point) => point.weight), 1e-12);
  const ordered = [...points].sort((a, b) => b.weight - a.weight); // small ones in front, and the first by the keyboard is the largest
  const marks = ordered.map((point, i) => {
    const radius = 3 + 11 * Math.sqrt(Math.max(0, point.weight) / most);
    const colour = Math.max(0, groups.indexOf(point.group)) % kColours;
    const [x, y] = [frame.x(point.intensity).toFixed(1), frame.y(point.tflops).toFixed(1)];
    return svg(
      'a',
      {
        href: point.href,
        class: `point c${colour}`,
        tabindex: i === 0 ? 0 : -1,
        'aria-label': point.about,
        'data-tip': point.about,
      },
      point.roof ? svg('line', { class: 'to-roof', x1: x, x2: x, y1: y, y2: frame.y(point.roof).toFixed(1) }) : null,
      svg('circle', { cx: x, cy: y, r: radius.toFixed(1) }),
    );
  });
  // One stop of the tab key; arrows go from the point that takes most to the one that takes least.
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = marks.indexOf(document.activeElement as SVGAElement);
    const next = step === undefined || at < 0 ? undefined : marks[at + step];
    if (!next) return;
    event.preventDefault();
    marks[at]?.setAttribute('tabindex', '-1');
    next.setAttribute('tabindex', '0');
    next.focus();
  };
  return svg('g', { role: 'group', 'aria-label': 'points, by the time they take', keydown: move }, ...marks);
}

/** The chart, drawn anew when its width changes. */
export function roofline_chart(levels: Level[], roofs: Roof[]): HTMLElement {
  const usable = levels
    .map((level) => ({ ...level, points: level.points.filter((point) => point.intensity > 0 && point.tflops > 0) }))
    .filter((level) => level.points.length > 0);
  let level = usable[0];
  const figure = el('figure', { class: 'chart' });
  if (!level) return figure;
  const box = el('div');
  const legend = el('ul', { class: 'legend' });
  const draw = (): void => {
    if (!level) return;
    const groups = [...new Set(usable.flatMap((one) => one.points.map((point) => point.group)))];
    const frame = frame_of(level.points, roofs, Math.max(280, box.clientWidth || 800));
    box.replaceChildren(
      svg(
        'svg',
        {
          width: frame.width,
          height: frame.height,
          viewBox: `0 0 ${frame.width} ${frame.height}`,
          role: 'group',
          'aria-label': `roofline of ${level.name}; the table below has the same`,
        },
        ...axes(frame),
        ...roof_lines(frame, roofs),
        point_marks(frame, level.points, groups),
      ),
    );
    legend.replaceChildren(
      ...groups.slice(0, 12).map((group, i) => el('li', { class: `c${i % kColours}` }, shortened(group, 60))),
    );
  };
  const choice = usable.length > 1 ? level_choice(usable, (chosen) => ((level = chosen), draw())) : null;
  const dashes = roofs.some((roof) => !roof.measured) ? ' Dashed: data sheet.' : '';
  const lines =
    roofs.length === 0 && usable.some((one) => one.points.some((point) => point.roof))
      ? ' Lines upwards: to the measured roof.'
      : roofs.some((roof) => roof.measured)
        ? ' Solid: measured.'
        : '';
  figure.append(
    el('figcaption', {}, `Area: time.${lines}${dashes} Arrow keys go from point to point, Enter to its rows.`),
    ...(choice ? [choice] : []),
    box,
    legend,
  );
  new ResizeObserver(draw).observe(box);
  return figure;
}

function level_choice(levels: Level[], choose: (level: Level) => void): HTMLElement {
  const select = el(
    'select',
    {},
    ...levels.map((level, i) => el('option', { value: i }, `${level.name} (${level.points.length})`)),
  );
  select.addEventListener('input', () => {
    const level = levels[Number(select.value)];
    if (level) choose(level);
  });
  return el('p', { class: 'controls' }, el('label', {}, 'points: ', select));
}

/** Roofs of the types that the points have: measured ones and the data sheet's. */
function roofs_of(device: Row | null, types: Set<string>): Roof[] {
  const peaks = row_of(device?.['peaks']);
  const memory = row_of(peaks?.['dram_gbs']);
  const out: Roof[] = [];
  const provenance = (peak: Row): boolean => /^measured/.test(text_of(peak['provenance']));
  for (const type of types) {
    const peak = row_of(peaks?.[`${type}_tflops`]);
    const value = number_of(peak?.['value']);
    const gbs = number_of(memory?.['value']);
    if (!peak || !memory || value === null || gbs === null) continue;
    out.push({
      name: `${type} ${provenance(peak) ? 'measured' : 'data sheet'}`,
      tflops: value,
      gbs,
      measured: provenance(peak),
    });
    const measured = number_of(peak['measured']);
    if (measured !== null)
      out.push({
        name: `${type} measured`,
        tflops: measured,
        gbs: number_of(memory['measured']) ?? gbs,
        measured: true,
      });
  }
  return out;
}

const about = (name: string, stage: string, row: Row, tflops: number, intensity: number, ms: number): string => {
  const of_roof = number_of(row['of_roof_frac']);
  return `${shortened(name, 200)}, ${shortened(stage, 60)}: ${format_rate(tflops)} TFLOP/s at ${format_rate(intensity)} FLOP/B, ${format_ms(ms)}${of_roof === null ? '' : `, ${format_percent(of_roof)} of its roof`}`;
};

function kernel_points(data: Row): Point[] {
  return rows_of(data['roofline']).map((row) => {
    const [name, stage, shape] = [text_of(row['name']), text_of(row['stage']), text_of(row['shape'])];
    const intensity = number_of(row['intensity']) ?? 0;
    const tflops = number_of(row['tflops']) ?? 0;
    const weight = number_of(row['total_ms']) ?? 0;
    const wanted: Record<string, string> = { name, stage };
    if (rows_of(data['kernels_topk']).some((kernel) => kernel['name'] === name && kernel['shape'] === shape))
      wanted['shape'] = shape;
    return {
      name,
      group: stage,
      intensity,
      tflops,
      weight,
      href: link_to('kernels', wanted),
      about: about(`${short_kernel_name(name)} ${shape}`, stage, row, tflops, intensity, weight),
    };
  });
}

function operator_points(data: Row): Point[] {
  return rows_of(data['operators']).flatMap((row) => {
    const [flops, bytes, ms] = [number_of(row['flops']), number_of(row['memory_bytes']), number_of(row['gpu_self_ms'])];
    if (!flops || !bytes || !ms) return [];
    const [name, stage] = [text_of(row['name']), text_of(row['stage'])];
    const [intensity, tflops] = [flops / bytes, flops / ms / 1e9];
    return [
      {
        name,
        group: stage,
        intensity,
        tflops,
        weight: ms,
        href: link_to('operators', { name, stage }),
        about: about(name, stage, row, tflops, intensity, ms),
      },
    ];
  });
}

function stage_points(data: Row): Point[] {
  return rows_of(data['stages']).flatMap((row) => {
    const [intensity, tflops] = [number_of(row['intensity']), number_of(row['tflops'])];
    if (!intensity || !tflops) return [];
    const name = text_of(row['name']);
    const weight = number_of(row['wall_ms']) ?? 0;
    return [
      {
        name,
        group: name,
        intensity,
        tflops,
        weight,
        href: `#stage/${encodeURIComponent(name)}`,
        about: about(name, 'whole stage', row, tflops, intensity, weight),
      },
    ];
  });
}

export function add_roofline(page: Page): void {
  page.claim('roofline');
  const rows = rows_of(page.data['roofline']);
  const levels: Level[] = [
    { name: 'kernels', points: kernel_points(page.data) },
    { name: 'operators', points: operator_points(page.data) },
    { name: 'stages', points: stage_points(page.data) },
  ];
  if (levels.every((level) => level.points.length === 0)) {
    page.section('roofline', 'Roofline', why_missing(page, /shape|FLOP|roof|arithmetic|MFU/i));
    return;
  }
  const roofs = roofs_of(
    row_of(page.data['device']),
    new Set(rows.map((row) => text_of(row['dtype'])).filter((type) => type !== '')),
  );
  page.section(
    'roofline',
    'Roofline',
    roofs.length
      ? null
      : el('p', { class: 'missing' }, 'No ceilings of this device are known: llmprof peaks measures them.'),
    roofline_chart(levels, roofs),
    page.table({
      id: 'roofline',
      caption: 'Kernels with known arithmetic against the roofline',
      rows,
      columns: [
        'name',
        'category',
        'stage',
        'shape',
        'total_ms',
        'intensity',
        'tflops',
        'attainable_tflops',
        'of_roof_frac',
        'bound',
        'gain_ms',
      ],
      short: { name: short_kernel_name },
      sums: ['total_ms', 'calls', 'gain_ms'],
      group_by: ['category', 'stage', 'dtype', 'bound'],
      link: (column, row) =>
        column === 'name' ? link_to('kernels', { name: text_of(row['name']), stage: text_of(row['stage']) }) : null,
    }),
  );
}
