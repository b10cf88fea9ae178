// Several ranks of one job: who waits for whom, and the collectives of all of them together.
import type { Page } from '../page';

export function add_ranks(page: Page): void {
  for (const table of ['ranks', 'joined_collectives', 'joined_files']) page.list(table);
}
