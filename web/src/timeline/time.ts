// Times on the axis of a timeline.

const UNITS: readonly (readonly [number, string])[] = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'us'],
  [1, 'ns'],
];

/** As many decimals as differences of `step` need; without one four figures. */
export function format_span(ns: number, step?: number): string {
  const size = Math.abs(ns);
  const [scale, unit] = UNITS.find(([one]) => size >= one) ?? UNITS[UNITS.length - 1]!;
  const value = ns / scale;
  if (size === 0) return '0';
  const decimals =
    step === undefined
      ? 3 - Math.floor(Math.log10(Math.abs(value)))
      : Math.ceil(-Math.log10(Math.max(step / scale, 1e-9)) - 1e-9);
  const text = value.toFixed(Math.min(9, Math.max(0, unit === 'ns' && step === undefined ? 0 : decimals)));
  return `${text} ${unit}`;
}

/** Round moments, at most `most` and a few. */
export function ruler_ticks(from: number, to: number, most: number): { at: number[]; step: number } {
  const raw = Math.max((to - from) / most, 1e-3);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((one) => power * one >= raw) ?? 10);
  const at: number[] = [];
  for (let i = Math.ceil(from / step); i * step <= to; ++i) at.push(i * step);
  return { at, step };
}
