// Numbers as llmprof's pages of text have them: four figures of a time, its unit by its size; one decimal of a percentage;
// decimal units.

const grouped = (text: string): string => text.replace(/\B(?=(\d{3})+(?!\d))/g, ',');

/** So many significant figures, no exponent. */
function figures(value: number, digits: number): string {
  if (value === 0) return '0';
  const rounded = Number(value.toPrecision(digits));
  const size = Math.floor(Math.log10(Math.abs(rounded)));
  const decimals = Math.min(20, Math.max(0, digits - 1 - size));
  return value.toFixed(decimals);
}

export function format_ms(ms: number): string {
  const size = Math.abs(ms);
  if (size === 0) return '0 ms';
  if (size >= 1e4) return figures(ms / 1e3, 4) + ' s';
  if (size >= 1) return figures(ms, 4) + ' ms';
  if (size >= 1e-3) return figures(ms * 1e3, 4) + ' us';
  return figures(ms * 1e6, 3) + ' ns';
}

export const format_percent = (fraction: number): string =>
  Math.abs(fraction) < 0.01 && fraction !== 0 ? (100 * fraction).toFixed(2) + ' %' : (100 * fraction).toFixed(1) + ' %';

export const format_count = (count: number): string =>
  Number.isInteger(count) && Math.abs(count) < 1e15 ? grouped(String(count)) : format_rate(count);

export function format_rate(value: number): string {
  if (Math.abs(value) >= 100) return grouped(value.toFixed(0));
  return Math.abs(value) < 1e-4 && value !== 0 ? value.toExponential(2) : figures(value, 3);
}

export function format_si(value: number, unit: string): string {
  const steps = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
  let step = 0;
  let size = value;
  while (Math.abs(size) >= 999.5 && step < steps.length - 1) {
    size /= 1000;
    ++step;
  }
  const number = step === 0 && Number.isInteger(size) ? String(size) : figures(size, 3);
  return `${number} ${steps[step]}${unit}`;
}

/** On an axis: without zeros behind the point. */
export const format_tick = (text: string): string => text.replace(/(\.\d*?)0+(?=\D|$)/, '$1').replace(/\.(?=\D|$)/, '');

/** A number with the unit of its field, as people read it. */
export function format_number(value: number, unit: string): string {
  switch (unit) {
    case 'ms':
      return format_ms(value);
    case 'us':
      return format_ms(value / 1e3);
    case 'ns':
      return format_ms(value / 1e6);
    case 's':
      return format_ms(value * 1e3);
    case 'frac':
      return format_percent(value);
    case 'bytes':
      return format_si(value, 'B');
    case 'bytes/s':
      return format_si(value, 'B/s');
    case 'FLOP':
      return format_si(value, 'FLOP');
    case 'FLOP/byte':
    case 'FLOP/B':
      return format_rate(value) + ' FLOP/B';
    case '':
    case '1':
      return format_count(value);
    default:
      return `${format_rate(value)} ${unit}`;
  }
}
