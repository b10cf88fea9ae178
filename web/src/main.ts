// The page: reads what it is about, makes its sections, and goes where its address says. A kind of result that has no list
// of sections here is shown all the same, every list of it as a table.
import './style.css';
import { el } from './dom';
import { Page } from './page';
import { read_result, row_of, rows_of, text_of, texts_of, type Result } from './result';
import { add_answer } from './sections/answer';
import { add_bench, add_comparison, add_peaks } from './sections/bench';
import { add_diff } from './sections/diff';
import { add_diagnostics, add_recording, add_unknown } from './sections/ground';
import { add_latency } from './sections/latency';
import { add_doctor, add_model } from './sections/model';
import { add_path } from './sections/path';
import { add_ranks } from './sections/ranks';
import { add_roofline } from './sections/roofline';
import { add_memory, add_telemetry } from './sections/series';
import { add_allocators, add_servers, of_servers_alone } from './sections/servers';
import { add_stages } from './sections/stages';
import { add_timeline } from './sections/timeline';
import { add_categories, add_idle, add_kernels, add_operators } from './sections/work';
import { theme_switch } from './theme';
import { install_tips } from './tip';

const sections: Record<string, ((page: Page) => void)[]> = {
  report: [
    add_answer,
    add_stages,
    add_ranks,
    add_path,
    add_timeline,
    add_roofline,
    add_operators,
    add_kernels,
    add_categories,
    add_idle,
    add_latency,
    add_memory,
    add_allocators,
    add_telemetry,
    add_recording,
    add_unknown,
    add_diagnostics,
  ],
  bench: [add_bench],
  comparison: [add_comparison],
  diff: [add_diff],
  peaks: [add_peaks],
  model: [add_model],
  doctor: [add_doctor],
};

function add_memory_if_known(page: Page): void {
  if (row_of(page.data['memory'])) add_memory(page);
  else page.claim('memory');
}

/** Of results of benchmarks, metrics pages and snapshots of memory without a recording beside them. */
const sections_of_servers = [
  add_answer,
  add_servers,
  add_allocators,
  add_memory_if_known,
  add_recording,
  add_unknown,
  add_diagnostics,
];

/** The sides by the names of their runs, without folders. */
function title_of_diff(data: Result['data']): string {
  const sides = rows_of(data['sides']).map((side) =>
    texts_of(side['runs'])
      .map((run) => run.replace(/^.*\//, ''))
      .join(','),
  );
  return sides.join(' → ').slice(0, 120);
}

/** What the page is about, in the fewest words. */
function title_of(result: Result): string {
  const { data } = result;
  if (result.kind === 'diff') return title_of_diff(data);
  const file = texts_of(row_of(data['source'])?.['files'])[0];
  const device = text_of(row_of(data['device'])?.['name']);
  const name = file ? file.replace(/^.*\//, '') : text_of(data['id']) || device || result.kind;
  return name.slice(0, 120);
}

async function start(): Promise<void> {
  const result = await read_result();
  const page = new Page(result);
  page.claim('schema');
  const of_kind = sections[result.kind] ?? [];
  for (const add of result.kind === 'report' && of_servers_alone(result.data) ? sections_of_servers : of_kind)
    add(page);
  page.rest();
  page.show(title_of(result), theme_switch());
  install_tips();
}

start().catch((error: unknown) => {
  const why = error instanceof Error ? error.message : String(error);
  document.body.prepend(el('p', { role: 'alert', class: 'failed' }, `This page cannot show its result: ${why}`));
});
