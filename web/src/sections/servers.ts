// What clients of a server saw, what its metrics pages count, and what NCCL's log says.
import type { Page } from '../page';
import { rows_of, type Row } from '../result';

const tables = [
  'client_runs',
  'server_figures',
  'server_distributions',
  'metrics_pages',
  'nccl_links',
  'nccl_collectives',
  'nccl_choices',
  'nccl_warnings',
  'nccl_ranks',
];

/** Whether there is nothing else: no steps of a GPU, no kernels and no products. */
export const of_servers_alone = (data: Row): boolean =>
  ['stages', 'profiled_kernels', 'logged_products'].every((key) => rows_of(data[key]).length === 0) &&
  tables.some((key) => rows_of(data[key]).length > 0);

export function add_servers(page: Page): void {
  for (const table of tables) page.list(table);
}
