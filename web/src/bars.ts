// Bars beside their numbers: a table of which one column is drawn. It prints, scales and reads aloud as a table does.
import { el, shortened, svg } from './dom';
import { format_ms, format_percent } from './format';

export interface Bar {
  label: string;
  from: number; // of the bar, in the unit of `total`
  to: number;
  kind: string; // its colour: a class of style.css
  link?: string | null;
  note?: string; // behind the name
  tip?: string; // where the number comes from
  sum?: boolean; // what is left, rather than a part
}

const kWidth = 1000;

export function bar_table(caption: string, what: string, bars: Bar[]): HTMLElement {
  const total = Math.max(...bars.map((bar) => Math.max(bar.from, bar.to)), 1e-12);
  const rows = bars.map((bar) => {
    const length = Math.abs(bar.to - bar.from);
    const name = bar.link ? el('a', { href: bar.link }, shortened(bar.label)) : shortened(bar.label);
    const x = (Math.min(bar.from, bar.to) / total) * kWidth;
    const drawn = svg(
      'svg',
      { viewBox: `0 0 ${kWidth} 16`, preserveAspectRatio: 'none', 'aria-hidden': 'true', class: 'bar' },
      svg('rect', {
        x: x.toFixed(2),
        y: 1,
        width: Math.max(2, (length / total) * kWidth).toFixed(2),
        height: 14,
        class: bar.kind,
      }),
    );
    return el(
      'tr',
      { class: bar.sum ? 'sum' : null },
      el('th', { scope: 'row' }, name, bar.note ? el('small', {}, ` ${bar.note}`) : null),
      el(
        'td',
        { class: 'number', 'data-tip': bar.tip },
        (bar.to < bar.from && !bar.sum ? '−' : '') + format_ms(length),
      ),
      el('td', { class: 'number' }, format_percent(length / total)),
      el('td', { class: 'drawn' }, drawn),
    );
  });
  const head = el(
    'tr',
    {},
    ...[what, 'per step', 'of step'].map((name, i) => el('th', { scope: 'col', class: i ? 'number' : null }, name)),
    el('td', {}),
  );
  return el(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    el('table', { class: 'bars' }, el('caption', {}, caption), el('thead', {}, head), el('tbody', {}, ...rows)),
  );
}
