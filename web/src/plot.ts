// Series over time, and dots, by uPlot. Colours come from the page's style, so that they follow its theme; beside each chart
// stands a table of the same numbers, so that for a screen reader the canvas is one picture with a name.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { el, shortened } from './dom';
import { format_tick } from './format';

export interface Series {
  label: string;
  values: (number | null)[];
  dots?: boolean; // no line
  hollow?: boolean;
  bare?: boolean; // a line without its points
  format: (value: number) => string;
}
export interface PlotSpec {
  name: string;
  x: number[]; // sorted
  x_label: string;
  x_format: (value: number) => string;
  series: Series[];
  height?: number;
  logarithmic_x?: boolean;
  tight?: boolean; // y need not begin at 0
  pick?: (index: number) => void; // a click at a point of x
}

const drawn = new Set<() => void>();

/** After the theme has changed. */
export function redraw_plots(): void {
  for (const draw of drawn) draw();
}

export const colour = (i: number): string =>
  getComputedStyle(document.documentElement)
    .getPropertyValue(`--c${i % 6}`)
    .trim() || '#888';
const style_value = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options_of(spec: PlotSpec, width: number, say: (text: string) => void): uPlot.Options {
  const axis = {
    stroke: style_value('--dim'),
    grid: { stroke: style_value('--line'), width: 1 },
    ticks: { stroke: style_value('--line'), width: 1 },
    font: '12px system-ui, sans-serif',
  };
  const format = spec.series[0]?.format ?? String;
  return {
    width,
    height: spec.height ?? 220,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: {
      x: {
        time: false,
        ...(spec.logarithmic_x
          ? { distr: 3, range: (_, low, high): uPlot.Range.MinMax => [low / 1.15, high * 1.15] }
          : {}),
      },
      y: {
        range: (_, low, high) => {
          if (spec.tight && low > 0) return [low * 0.9, high * 1.1];
          return low === high ? [low - 1, high + 1] : [Math.min(0, low), high * 1.08];
        },
      },
    },
    axes: [
      {
        ...axis,
        space: 90,
        ...(spec.logarithmic_x ? { splits: () => spec.x } : {}),
        values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : format_tick(spec.x_format(tick)))),
      },
      {
        ...axis,
        size: 84,
        values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : format_tick(format(tick)))),
      },
    ],
    series: [
      { label: spec.x_label },
      ...spec.series.map((one, i): uPlot.Series => ({
        label: one.label,
        stroke: colour(i),
        width: 1.5,
        spanGaps: !one.dots,
        ...(one.dots ? { paths: () => null } : {}),
        points: {
          show: one.dots === true || (spec.x.length < 30 && !one.bare),
          size: one.hollow ? 7 : 5,
          stroke: colour(i),
          fill: one.hollow ? style_value('--page') : colour(i),
        },
      })),
    ],
    hooks: {
      setCursor: [
        (plot) => {
          const at = plot.cursor.idx;
          if (at === null || at === undefined) return say('');
          const values = spec.series.flatMap((one) => {
            const value = one.values[at];
            return value === null || value === undefined ? [] : [`${one.label} ${one.format(value)}`];
          });
          say(`${spec.x_label} ${spec.x_format(spec.x[at] ?? 0)}: ${values.join(', ')}`);
        },
      ],
    },
  };
}

export function plot(spec: PlotSpec): HTMLElement {
  const names = spec.series.map((one) => one.label).join(', ');
  const box = el('div', {
    role: 'img',
    'aria-label': shortened(`${spec.name}: ${names}, over ${spec.x_label}; the table below has the numbers`, 300),
  });
  const said = el('p', { class: 'said' });
  let made: uPlot | null = null;
  let width = 0;
  const draw = (): void => {
    width = box.clientWidth;
    if (width === 0) return;
    made?.destroy();
    made = new uPlot(
      options_of(spec, width, (text) => (said.textContent = text || '\u00a0')),
      [spec.x, ...spec.series.map((one) => one.values)],
      box,
    );
    made.over.addEventListener('click', () => {
      const at = made?.cursor.idx;
      if (at !== null && at !== undefined) spec.pick?.(at);
    });
  };
  drawn.add(draw);
  new ResizeObserver(() => {
    if (box.clientWidth !== width) draw();
  }).observe(box);
  const legend = el(
    'ul',
    { class: 'legend' },
    ...spec.series.map((one, i) =>
      el('li', { class: `c${i % 6}${one.hollow ? ' hollow' : ''}` }, shortened(one.label, 60)),
    ),
  );
  return el('figure', { class: 'chart' }, el('figcaption', {}, spec.name), box, said, legend);
}
