// What clients of a server saw, what its metrics pages count, what NCCL's log and its Inspector say, engines of TensorRT,
// scopes and kernels of Proton, and the state of an allocator.
import type { Page } from '../page';
import { rows_of, type Row } from '../result';

const tables = [
  'client_runs',
  'client_stages',
  'client_clocks',
  'server_figures',
  'server_distributions',
  'metrics_pages',
  'nccl_links',
  'nccl_collectives',
  'nccl_choices',
  'nccl_warnings',
  'nccl_ranks',
  'nccl_operations',
  'engine_latency',
  'engine_layers',
  'engine_profiles',
  'proton_scopes',
  'proton_kernels',
  'proton_metrics',
  'proton_profiles',
  'proton_gpus',
];
const of_allocators = ['allocators', 'out_of_memory', 'memory_places', 'memory_ranges', 'largest_blocks'];

/** Whether there is nothing else: no steps of a GPU, no kernels and no products. */
export const of_servers_alone = (data: Row): boolean =>
  ['stages', 'profiled_kernels', 'logged_products'].every((key) => rows_of(data[key]).length === 0) &&
  [...tables, ...of_allocators].some((key) => rows_of(data[key]).length > 0);

export function add_servers(page: Page): void {
  for (const table of tables) page.list(table);
}

export function add_allocators(page: Page): void {
  for (const table of of_allocators) page.list(table);
}
