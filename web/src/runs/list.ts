// All runs, the newest first: each number leads to the page of its result, and to its comparison with the run before it.
import { el } from '../dom';
import type { Page } from '../page';
import { number_of, rows_of, text_of, type Row } from '../result';
import { time_of } from './api';

/** Runs whose result can be shown. */
export const with_results = (data: Row): Row[] => rows_of(data['runs']).filter((run) => run['state'] === 'whole');

const kind_and_name = (run: Row): string => JSON.stringify([run['kind'], run['name']]);

export function add_list(page: Page): void {
  page.claim('runs', 'folder', 'stored_bytes');
  const runs = rows_of(page.data['runs']);
  if (runs.length === 0) {
    page.section(
      'runs',
      'Runs',
      el(
        'p',
        {},
        'There are no runs yet. ',
        el('code', {}, 'llmprof run -- PROGRAM'),
        ' makes one; reload this page then.',
      ),
    );
    return;
  }
  // Of a kind and name, the run before each: the newest stand first.
  const before = new Map<number, number>();
  const newer = new Map<string, number>();
  for (const run of with_results(page.data)) {
    const number = number_of(run['number']) ?? 0;
    const later = newer.get(kind_and_name(run));
    if (later !== undefined) before.set(later, number);
    newer.set(kind_and_name(run), number);
  }
  const rows = runs.map((run): Row => {
    const previous = before.get(number_of(run['number']) ?? 0);
    return {
      number: run['number'] ?? null,
      kind: run['kind'] ?? null,
      name: run['name'] ?? null,
      when: time_of(number_of(run['start_unix_ns'])),
      ttft_ms: run['ttft_ms'] ?? null,
      tpot_ms: run['tpot_ms'] ?? null,
      gpu: text_of(run['gpu']) || null,
      state: run['state'] ?? null,
      pinned: run['pinned'] === true ? 'pinned' : '',
      compare: previous === undefined ? '' : `with ${previous}`,
      compressed: run['compressed'] ?? null,
      bytes: run['bytes'] ?? null,
      stored_bytes: run['stored_bytes'] ?? null,
      command: run['command'] ?? null,
    };
  });
  const link = (column: string, row: Row): string | null => {
    const number = number_of(row['number']);
    if (number === null || row['state'] !== 'whole') return null;
    if (column === 'number' || column === 'name') return `/runs/${number}`;
    return column === 'compare' && before.has(number) ? `/diff/${before.get(number)}/${number}` : null;
  };
  page.section(
    'runs',
    'Runs',
    page.table({
      id: 'runs',
      caption: 'What llmprof run, bench, peaks and analyze have kept',
      rows,
      columns: ['number', 'kind', 'name', 'when', 'ttft_ms', 'tpot_ms', 'gpu', 'state', 'pinned', 'compare'],
      group_by: ['kind', 'name', 'gpu', 'state'],
      sums: ['stored_bytes'],
      link,
    }),
  );
}
