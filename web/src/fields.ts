// What the page knows of fields beyond their values: the unit, what to call them, and where the numbers come from.
import type { Result, Row, Value } from './result';
import { number_of, text_of } from './result';
import { format_number, format_rate } from './format';

const by_ending: Record<string, string> = {
  ms: 'ms',
  us: 'us',
  ns: 'ns',
  s: 's',
  frac: 'frac',
  bytes: 'bytes',
  w: 'W',
  mhz: 'MHz',
};

/** Units and provenance of the fields of one list or record, by its path in the result. */
export class Fields {
  constructor(
    private readonly result: Result,
    readonly path: string,
  ) {}

  unit(field: string): string {
    const declared = this.result.units[this.path === '' ? field : `${this.path}.${field}`];
    return declared ?? by_ending[field.slice(field.lastIndexOf('_') + 1)] ?? '';
  }

  /** The value as people read it; null where there is none. */
  show(field: string, value: Value | undefined, row?: Row): string | null {
    if (value === null || value === undefined) return null;
    if (typeof value === 'bigint')
      return field.endsWith('unix_ns') ? date_of(Number(value)) : format_number(Number(value), this.unit(field));
    if (typeof value === 'number') {
      if (field.endsWith('unix_ns')) return date_of(value);
      const unit = this.unit(field) || (field === 'value' ? text_of(row?.['unit']) : '');
      return /^(device|layer|seed|process_id|year)$/.test(field) ? String(value) : format_number(value, unit);
    }
    if (typeof value === 'boolean') return value ? 'yes' : 'no';
    if (typeof value === 'string') return value;
    if (Array.isArray(value)) {
      if (value.every((one) => typeof one === 'number'))
        return value.length > 4
          ? `${value.length} values`
          : value.map((one) => format_number(one as number, this.unit(field))).join(' to ');
      if (value.every((one) => typeof one === 'string')) return value.join('; ');
      return value.length === 1 ? '1 row' : `${value.length} rows`;
    }
    return number_of(value['value']) !== null ? format_rate(value['value'] as number) : '…';
  }

  provenance(field: string, row?: Row): string {
    return provenance_of(this.result.kind, this.path, field, row);
  }

  /** What a column is called. */
  name(field: string): string {
    return (field === 'share' && shares[this.path]) || name_of(field);
  }

  /** Exact name, unit and provenance: what stands beside a column's heading. */
  about(field: string): string {
    const unit = this.unit(field);
    const from = this.provenance(field);
    return [
      `${this.path === '' ? '' : this.path + '.'}${field}`,
      unit && unit !== '1' ? `in ${unit === 'frac' ? 'shares of 1' : unit}` : '',
      from,
    ]
      .filter((part) => part !== '')
      .join(' · ');
  }
}

function date_of(unix_ns: number): string {
  const date = new Date(unix_ns / 1e6);
  return Number.isNaN(date.getTime()) || date.getUTCFullYear() < 1990
    ? format_number(unix_ns, 'ns')
    : date.toISOString().replace('T', ' ');
}

const plain_names: Record<string, string> = {
  gpu_idle_ms: 'GPU idle',
  gpu_busy_ms: 'GPU busy',
  gpu_busy_frac: 'GPU busy share',
  mfu: 'MFU',
  mbu: 'MBU',
  flops: 'FLOPs',
  tflops: 'TFLOP/s',
  gbs: 'GB/s',
  of_roof_frac: 'of roof',
  intensity: 'FLOP/B',
  sm_clock_mhz: 'SM clock',
  l2_hit_frac: 'L2 hits',
  gr_active_frac: 'compute engine active',
  p50: 'median',
  own_ms: 'wall without the recorder',
  bound_frac: 'bound, share of the time',
  dram_bytes_model: 'DRAM bytes, at least',
  dram_measured_over_model: 'DRAM bytes, measured over least',
  flops_full_attention: 'FLOPs without a causal mask',
  roof_tflops: 'roof',
  // Of the host: how many stands beside how long.
  operators_ms: 'operators, total',
  launch_ms: 'launches, total',
  sync_ms: 'syncs, total',
  host_per_gpu: 'host over GPU time',
  // Of a step of a stage: how long, not how many.
  kernels_p50_ms: 'kernels, time (median)',
  copies_p50_ms: 'copies, time (median)',
  kernels_mean_ms: 'kernels, time (mean)',
  copies_mean_ms: 'copies, time (mean)',
};

/** What a share is a part of, by the table that it stands in. */
const shares: Record<string, string> = {
  kernels_topk: 'share of the recording',
  categories: 'share of the stage',
};

/** "wall" of wall_ms: the unit stands at the numbers. */
export function name_of(field: string): string {
  const known = plain_names[field];
  if (known) return known;
  const words = field
    .replace(/\./g, ' ')
    .replace(/_(ms|us|ns|frac|bytes|mhz|w|c|j)$/, (_, unit: string) => (unit === 'bytes' ? ' bytes' : ''));
  return words
    .replace(/_/g, ' ')
    .replace(/ p50$/, ', median')
    .replace(/ mean$/, ', mean')
    .replace(/\bflop(s?)\b/g, 'FLOP$1')
    .replace(/\btflops\b/g, 'TFLOP/s')
    .replace(/\bgemm\b/g, 'GEMM')
    .replace(/\bfma\b/g, 'FMA')
    .replace(/\bcuda\b/g, 'CUDA')
    .replace(/\bgpu\b/g, 'GPU')
    .replace(/\bcpu\b/g, 'CPU')
    .replace(/\bttft\b/g, 'TTFT')
    .replace(/\btpot\b/g, 'TPOT')
    .replace(/\bitl\b/g, 'ITL')
    .replace(/\bmfu\b/g, 'MFU')
    .replace(/\bmbu\b/g, 'MBU')
    .replace(/\bdram\b/g, 'DRAM')
    .replace(/\bkv\b/g, 'KV')
    .replace(/\bsm\b/g, 'SM');
}

const counters =
  /^(dram_bytes_measured|dram_measured_over_model|tensor_cycles|fma_instructions|(tensor_|fma_)?flops_measured|tensor_active_frac|sm_active_frac|dram_frac|l2_hit_frac|gr_active_frac|sm_clock_mhz|dram_bytes_per_s_measured)$/;
const shapes = /^(flops.*|gemm_flops|memory_bytes|bytes|weight_bytes|kv_bytes|dram_bytes_model|intensity)$/;

/** Where the numbers of a field come from, in the words of docs/glossary.md. */
export function provenance_of(kind: string, path: string, field: string, row?: Row): string {
  if (path === 'device' || path.startsWith('device.')) return '';
  if (kind === 'model')
    return path.startsWith('gpu') ? 'formula, and the data sheet’s rates' : 'formula of the model’s configuration';
  if (kind === 'report') return of_report(path, field, row);
  if (kind === 'bench' || kind === 'peaks' || kind === 'comparison') {
    if (/datasheet/.test(field)) return 'measured, over the data sheet';
    if (path === 'ridge') return text_of(row?.['provenance']) || 'measured or data sheet';
    if (/^(flops|bytes.*|intensity)$/.test(field) && path !== 'flops') return 'formula of the shape';
    return 'measured';
  }
  return '';
}

function of_report(path: string, field: string, row?: Row): string {
  if (/^(device|layer|process_id)$/.test(field)) return '';
  if (/coverage_frac$/.test(field)) return 'counted';
  if (path.startsWith('model')) return '';
  if (counters.test(field)) return 'measured by hardware counters';
  if (/^(mfu|mbu|of_roof|roof_|attainable|peak_(tflops|gbs)|ridge|gain_ms|gemm_mfu)/.test(field))
    return 'formula: counted work, measured time, ceilings of the device';
  if (shapes.test(field))
    return (
      text_of(row?.['flops_provenance']) ||
      (path === 'stages' ? 'counted from shapes, or formula' : 'counted from recorded shapes')
    );
  if (/^(tflops|gbs)$/.test(field)) return 'counted work over measured time';
  if (field.includes('occupancy'))
    return text_of(row?.['occupancy_provenance']) || 'recorded or computed, never measured';
  if (path === 'critical_path' || path === 'critical_path_work') return 'measured, along replayed dependencies';
  if (path === 'what_ifs') return 'simulated: recorded steps replayed with the change';
  if (path === 'undisturbed' || field === 'undisturbed_ms' || field === 'own_ms')
    return 'measured or replayed without the recorder: see source';
  if (/^(power_w|energy|temperature)/.test(field)) return 'measured by the driver';
  return 'measured';
}
