// Colours of slices, light enough for dark text on them in either theme.

const BY_TINT: Record<string, string> = {
  gemm: '#8ab8f0',
  attention: '#f2a6a0',
  norm: '#f3d37a',
  rope: '#d9c3f0',
  activation: '#a9dcae',
  softmax: '#f0b8dc',
  elementwise: '#c9dd8f',
  embedding: '#9adbd6',
  'kv-cache': '#e3bd97',
  kv_cache: '#e3bd97',
  sampling: '#bcb6f2',
  'moe-routing': '#f2bf8c',
  moe_routing: '#f2bf8c',
  quantize: '#d6d08a',
  convolution: '#86c5da',
  communication: '#f59f7c',
  copy: '#dba7e8',
  graph: '#9fc3d8',
  stage: '#b9c6d6',
  path: '#f08f8f',
  idle: '#d0d0c8',
  range: '#bfd3b4',
  python: '#c9cbe8',
  operator: '#a5d0c2',
  library: '#d8c9a3',
  launch: '#9cc2ef',
  wait: '#eda79a',
  'copy-call': '#dba7e8',
  allocation: '#efcb84',
  call: '#c2cad2',
  recorder: '#d5b5b5',
  merged: '#b4b4b4',
};
const OTHER = '#c6c6c6';

export const tint_colors = (tints: readonly string[]): string[] => tints.map((tint) => BY_TINT[tint] ?? OTHER);

/** What the page says of its own colours. */
export interface Theme {
  back: string;
  text: string;
  faint: string; // text that matters less
  line: string;
  band: string; // behind heads of groups
  accent: string;
  path: string;
  found: string;
}

export function theme_of(element: Element): Theme {
  const style = getComputedStyle(element);
  const read = (name: string): string => style.getPropertyValue(name).trim();
  return {
    back: style.backgroundColor,
    text: style.color,
    faint: read('--timeline-faint'),
    line: read('--timeline-line'),
    band: read('--timeline-band'),
    accent: read('--timeline-accent'),
    path: read('--timeline-path'),
    found: read('--timeline-found'),
  };
}
