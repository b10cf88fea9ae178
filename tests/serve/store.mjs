// A store of real runs: analyses of recordings that the repository has, runs and a bench on the CPU, names that mean harm, and
// a series of one recording played at two speeds, and one of it played three times as slow.
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { recording_of } from '../web/pages.mjs';

export const kHostile =
  '</script><img src=x onerror="globalThis.hacked=1"><script>globalThis.hacked=2</script>\u001b[31m\u2028\u202e&lt;';
export const kFormula = "=cmd|' /C calc'!A0";
/** Factors by which the times of the series' runs are stretched: the level changes at the seventh. */
export const kFactors = [1, 1.01, 0.99, 1.005, 1.002, 0.995, 1.25, 1.26, 1.24, 1.255, 1.245, 1.252];
/** The same of a recording that is kept as a file of its own. */
export const kSlower = 3;

export function make_store({ binary, source, folder }) {
  const store = join(folder, 'runs');
  const env = { ...process.env, LLMPROF_STORE: store, LLMPROF_STORE_KEEP: '100', LLMPROF_HOME: folder };
  const inputs = join(source, 'tests', 'golden', 'inputs');
  const run = (...args) => {
    const done = spawnSync(binary, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
    if (![0, 3].includes(done.status)) throw new Error(`llmprof ${args.join(' ')}: ${done.status} ${done.stderr}`);
  };
  const llama = join(inputs, 'kineto_llama-3.1-8b_unlabelled.json.gz');
  run('analyze', llama, '-q');
  run('analyze', join(inputs, 'kineto_qwen2.5-0.5b_memory_stack.json.gz'), '-q');
  run('analyze', join(inputs, 'hostile_names.json.gz'), '-q');
  const harm = join(folder, 'harm.json');
  writeFileSync(harm, recording_of([kHostile, 'bad INVALID bytes', kFormula, `long ${'x'.repeat(10_000_000)}`]));
  run('analyze', harm, '-q');
  for (const name of [kHostile, kFormula])
    run('run', '--name', name, '-q', '--', binary, 'workload', '--device', 'cpu', '--size', 'tiny', '-q');
  run(
    'run',
    '--name',
    'elsewhere',
    '-o',
    join(folder, 'elsewhere'),
    '-q',
    '--',
    binary,
    'workload',
    '--device',
    'cpu',
    '--size',
    'tiny',
    '-q',
  );
  for (let i = 0; i < 2; ++i) run('bench', 'rmsnorm', '--device', 'cpu', '-q');
  const recording = JSON.parse(gunzipSync(readFileSync(llama)).toString());
  const analyze_played = (file, factor) => {
    const events = recording.traceEvents.map((event) => ({
      ...event,
      ...(event.ts === undefined ? {} : { ts: event.ts * factor }),
      ...(event.dur === undefined ? {} : { dur: event.dur * factor }),
    }));
    writeFileSync(file, JSON.stringify({ ...recording, traceEvents: events }));
    run('analyze', file, '-q');
  };
  const slower = join(folder, 'slower.json');
  analyze_played(slower, kSlower);
  const series = join(folder, 'series.json');
  for (const factor of kFactors) analyze_played(series, factor);
  const list = JSON.parse(execFileSync(binary, ['runs', 'list', '--json'], { env, maxBuffer: 1 << 28 }).toString());
  return { store, env, runs: list.runs, recordings: { llama, slower } };
}
