// Pages to test: made by llmprof from real recordings, and of results that would take minutes to measure from their JSON.
import { execFileSync } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

const report_sections = [
  'answer',
  'stages',
  'path',
  'timeline',
  'roofline',
  'operators',
  'kernels',
  'categories',
  'idle',
  'latency',
  'steps',
  'memory',
  'telemetry',
  'recording',
  'unknown',
  'diagnostics',
];

/** The page that html.cc would make of this JSON, without units. */
export function page_of(web, kind, json) {
  const escaped = json.replace(/</g, '\\u003c').replace(/>/g, '\\u003e').replace(/&/g, '\\u0026');
  const data = `<script type="application/json" id="llmprof-units">{}</script>\n<script type="application/json" id="llmprof-result" data-kind="${kind}">${escaped}</script>`;
  return readFileSync(join(web, 'dist', 'report.html'), 'utf8').replace('<!--llmprof:data-->', () => data);
}

/** The JSON inside a page. */
export function result_in(html) {
  const found = /id="llmprof-result"[^>]*?( data-encoding="gzip-base64")?>([^<]*)<\/script>/.exec(html);
  if (!found) throw new Error('expected a result in the page, found none');
  return JSON.parse(found[1] ? gunzipSync(Buffer.from(found[2], 'base64')).toString() : found[2]);
}

export function make_pages({ binary, source, web, folder }) {
  const run = (...args) => {
    try {
      return execFileSync(binary, args, {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, XDG_STATE_HOME: folder, XDG_CACHE_HOME: folder },
      });
    } catch (error) {
      if ([3, 4].includes(error.status)) return error.stdout; // an input with errors; a comparison that found one slow
      throw new Error(`llmprof ${args.join(' ')}: ${error.stderr}`);
    }
  };
  const inputs = join(source, 'tests', 'golden', 'inputs');
  const pages = [];
  const page = (name, sections, args) => {
    const file = join(folder, `${name}.html`);
    run(...args, '--format', 'html', '-o', file, '-q');
    pages.push({ name, file, sections });
  };
  const analyze = (name, recording, ...options) =>
    page(name, report_sections, ['analyze', recording, '--ceilings', 'datasheet', ...options]);
  analyze('eager', join(inputs, 'kineto_llama-3.1-8b_unlabelled.json.gz'));
  analyze(
    'graph',
    join(inputs, 'kineto_qwen2.5-0.5b_cuda_graph.json.gz'),
    '--model',
    'qwen2.5-0.5b',
    '--batch',
    '1',
    '--context',
    '512',
  );
  analyze('memory', join(inputs, 'kineto_qwen2.5-0.5b_memory_stack.json.gz'));
  analyze('two_gpus', join(inputs, 'pipeline_two_gpus.json.gz'));
  const ranks = ['0', '1'].map((rank) => join(inputs, `two_ranks_${rank}.json.gz`));
  page(
    'ranks',
    ['answer', 'stages', 'ranks', 'joined_collectives', 'joined_files', 'path', 'timeline'],
    ['analyze', ...ranks, '--ceilings', 'datasheet'],
  );
  // Of a real job, in which no steps are known.
  const late = ['0', '1'].map((rank) => join(inputs, `late_rank_${rank}.json.gz`));
  page(
    'late_rank',
    ['answer', 'stages', 'ranks', 'joined_collectives', 'joined_files', 'timeline'],
    ['analyze', ...late],
  );
  analyze('hostile', join(inputs, 'hostile_names.json.gz'));
  analyze('readings', join(inputs, 'dmon.txt'));
  const of_servers = ['recording', 'unknown', 'diagnostics'];
  page('clients', ['answer', 'client_runs', ...of_servers], ['analyze', join(inputs, 'serving_vllm.json')]);
  page(
    'client_stages',
    ['answer', 'stages', 'client_runs', 'client_stages', 'client_clocks', 'timeline', ...of_servers],
    ['analyze', join(inputs, 'client_stages.json.gz'), join(inputs, 'client_stages.jsonl')],
  );
  page(
    'metrics',
    ['answer', 'server_figures', 'server_distributions', 'metrics_pages', ...of_servers],
    ['analyze', join(inputs, 'metrics_vllm_before.prom'), join(inputs, 'metrics_vllm_after.prom')],
  );
  page(
    'nccl',
    ['answer', 'nccl_links', 'nccl_collectives', 'nccl_choices', 'nccl_warnings', 'nccl_ranks', ...of_servers],
    ['analyze', join(inputs, 'nccl_job.log')],
  );
  page(
    'inspector',
    ['answer', 'nccl_operations', ...of_servers],
    ['analyze', ...['4100', '4101'].map((process) => join(inputs, `nccl_inspector_${process}.json`))],
  );
  page(
    'engine',
    ['answer', 'engine_latency', 'engine_layers', 'engine_profiles', ...of_servers],
    ['analyze', ...['profile', 'layers', 'times'].map((what) => join(inputs, `trtexec_${what}.json`))],
  );
  page(
    'proton',
    ['answer', 'proton_scopes', 'proton_kernels', 'proton_metrics', 'proton_profiles', 'proton_gpus', ...of_servers],
    ['analyze', ...['scopes', 'python'].map((what) => join(inputs, `proton_${what}.hatchet`))],
  );
  page(
    'allocator',
    ['answer', 'allocators', 'memory_places', 'largest_blocks', 'memory', 'recording', 'unknown', 'diagnostics'],
    ['analyze', join(inputs, 'memory_snapshot.pickle.gz'), join(inputs, 'memory_stats.json')],
  );
  page(
    'profiled',
    ['answer', 'profiled_kernels', 'roofline', 'recording', 'unknown'],
    ['analyze', join(inputs, 'ncu_raw_decode.csv.gz')],
  );
  const recording = join(folder, 'cpu.llmprof');
  run('workload', '--device', 'cpu', '--size', 'tiny', '--record', recording, '-q');
  analyze('cpu', recording);
  page(
    'model',
    ['answer', 'stages', 'operators', 'params', 'memory', 'gpu'],
    ['model', 'qwen2.5-0.5b', '--gpu', 'H100-SXM5-80GB'],
  );
  page('doctor', ['checks'], ['doctor']);
  const compare = join(source, 'tests', 'golden', 'bench', 'compare');
  page('comparison', ['rows'], ['bench', '--compare', join(compare, 'old.json'), join(compare, 'new.json')]);
  const of_diff = ['answer', 'attribution', 'operations', 'kernels', 'operators', 'sides'];
  const graph = join(inputs, 'kineto_qwen2.5-0.5b_cuda_graph.json.gz');
  const eager = join(inputs, 'kineto_qwen2.5-0.5b_annotated.json.gz');
  page('diff', of_diff, ['diff', graph, eager, '--fail-on', 'tpot>3%']);
  page('diff_three', of_diff, ['diff', eager, graph, join(inputs, 'kineto_llama-3.1-8b_unlabelled.json.gz')]);
  const hostile = join(folder, 'hostile_again.json.gz');
  copyFileSync(join(inputs, 'hostile_names.json.gz'), hostile);
  page('diff_hostile', of_diff, ['diff', join(inputs, 'hostile_names.json.gz'), hostile]);
  for (const [kind, sections, json] of [
    ['bench', ['cases', 'sweeps', 'roofline', 'device'], join(compare, 'new.json')],
    [
      'peaks',
      ['roofline', 'flops', 'bandwidth', 'latency', 'ridge', 'recorder', 'device'],
      join(source, 'tests', 'web', 'peaks.json'),
    ],
    ['of-tomorrow', ['rows', 'thing'], null], // a kind of result that the page was not made for
  ]) {
    const file = join(folder, `${kind}.html`);
    const text = json
      ? readFileSync(json, 'utf8')
      : JSON.stringify({
          rows: [
            { name: 'a', wall_ms: 1 },
            { name: 'b', wall_ms: null },
          ],
          thing: { x: 1, list: [{ y: 2 }] },
          note: 'n',
        });
    writeFileSync(file, page_of(web, kind, text));
    pages.push({ name: kind, file, sections });
  }
  return pages;
}

/** A recording of PyTorch's profiler whose only kernels have these names, of one decode step after the other where there are
 *  `steps`, each kernel of so many us; bytes of invalid UTF-8 stand in for INVALID. */
export function recording_of(names, { steps = 0, us = 20 } = {}) {
  const all = steps === 0 ? names : Array(steps).fill(names).flat();
  const ranges = Array.from({ length: steps }, (_, step) => ({
    ph: 'X',
    cat: 'user_annotation',
    name: 'decode',
    pid: 1,
    tid: 1,
    ts: 999 + 40 * step * names.length,
    dur: 40 * names.length - 2,
  }));
  const events = all.flatMap((name, i) => [
    {
      ph: 'X',
      cat: 'cuda_runtime',
      name: 'cudaLaunchKernel',
      pid: 1,
      tid: 1,
      ts: 1000 + 40 * i,
      dur: 2,
      args: { correlation: i + 1 },
    },
    {
      ph: 'X',
      cat: 'kernel',
      name,
      pid: 0,
      tid: 7,
      ts: 1004 + 40 * i,
      dur: us,
      args: { correlation: i + 1, device: 0, stream: 7, grid: [1, 1, 1], block: [32, 1, 1] },
    },
  ]);
  const json = JSON.stringify({
    schemaVersion: 1,
    deviceProperties: [
      { id: 0, name: 'NVIDIA H200', totalGlobalMem: 1, computeMajor: 9, computeMinor: 0, numSms: 132 },
    ],
    traceEvents: [...ranges, ...events],
  });
  const [before, ...rest] = json.split('INVALID');
  return Buffer.concat([
    Buffer.from(before),
    ...rest.flatMap((part) => [Buffer.from([0xff, 0xfe, 0xc3]), Buffer.from(part)]),
  ]);
}
