#!/usr/bin/env node
// How large the page of a recording of 1,000,000 slices is, how long its timeline takes to open, how smooth it moves and how
// long a search takes, beside speedscope on the same slices.
//
//   node benchmarks/timeline.mjs [--binary LLMPROF] [--slices N] [--runs N] [--speedscope FOLDER] [--limit SECONDS]
//                                [--folder DIR] [--write FILE]
//
// A real recording is repeated; each copy's time between any two events is scaled at random by its own factor (fixed seed),
// so that no two copies are alike and gzip finds no more in them than in a long recording. Every opening has a fresh browser
// with a fresh profile. Frame intervals are those between animation frames while a key is held. FOLDER: where `npm install
// speedscope` was run; without it only llmprof is measured. What is measured of llmprof goes to standard error at once. Ends
// with 1 where a goal is missed (GOALS).
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { cpus, loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const { values: options } = parseArgs({
  options: {
    binary: { type: 'string', default: join(root, 'build/release/bin/llmprof') },
    slices: { type: 'string', default: '1000000' },
    runs: { type: 'string', default: '5' },
    speedscope: { type: 'string' },
    limit: { type: 'string', default: '300' },
    folder: { type: 'string' },
    write: { type: 'string' },
  },
});
const { chromium } = createRequire(join(root, 'web', 'package.json'))('playwright-core');
const RECORDING = join(root, 'tests/golden/inputs/kineto_llama-3.1-8b_unlabelled.json.gz');
const SLICES_PER_COPY = 50000; // about, idle time among them
const BROWSER = {
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--no-first-run', '--disable-background-networking', '--enable-unsafe-swiftshader'],
};
const VIEWPORT = { width: 1400, height: 900 };

// Of 1,000,000 slices on 2 cores without a GPU.
const GOALS = { page_mb: 15, open_ms: 1500, smooth_frac: 0.95, search_ms: 200 };

const limit_s = Number(options.limit); // how long speedscope may take to open

const median = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];
const quantile = (numbers, share) =>
  [...numbers].sort((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(numbers.length * share))];

// ---- the recording

/** mulberry32: small, and the same everywhere. */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const us = (ns) => `${Math.floor(ns / 1000)}.${String(ns % 1000).padStart(3, '0')}`;

/** Writes the recording `copies` times, warped; nesting and order stay, since time only stretches. */
function write_recording(path, copies) {
  const recording = JSON.parse(gunzipSync(readFileSync(RECORDING)).toString());
  const timed = recording.traceEvents.filter((event) => event.ph === 'X' && Number(event.ts) > 0);
  const first = Math.min(...timed.map((event) => event.ts));
  const start = timed.map((event) => Math.round((event.ts - first) * 1000));
  const end = timed.map((event, i) => start[i] + Math.round(event.dur * 1000));
  const moments = [...new Set([...start, ...end])].sort((a, b) => a - b);
  const place = new Map(moments.map((moment, i) => [moment, i]));
  const ids = ['correlation', 'External id', 'Ev Idx', 'Record function id'];
  const most = 1 + Math.max(...timed.map((event) => Math.max(0, ...ids.map((id) => event.args?.[id] ?? 0))));
  const { traceEvents, ...head } = recording;
  const file = openSync(path, 'w');
  const parts = [JSON.stringify(head).slice(0, -1), ',"traceEvents":[\n'];
  parts.push(
    traceEvents
      .filter((event) => event.ph === 'M')
      .map((event) => JSON.stringify(event))
      .join(',\n'),
  );
  const draw = random(1);
  let offset = 1e6;
  for (let copy = 0; copy < copies; ++copy) {
    const warped = new Float64Array(moments.length);
    for (let i = 1; i < moments.length; ++i) {
      const factor = Math.exp(0.35 * (draw() + draw() + draw() - 1.5) * 2);
      warped[i] = warped[i - 1] + Math.max(1, Math.round((moments[i] - moments[i - 1]) * factor));
    }
    timed.forEach((event, i) => {
      const at = warped[place.get(start[i])];
      const args = { ...event.args };
      for (const id of ids) if (args[id] > 0) args[id] += copy * most;
      const { ts, dur, args: _, ...rest } = event;
      const body = JSON.stringify({ ...rest, args });
      parts.push(`,\n${body.slice(0, -1)},"ts":${us(offset + at)},"dur":${us(warped[place.get(end[i])] - at)}}`);
      if (parts.length > 20000) writeSync(file, parts.splice(0).join(''));
    });
    offset += warped[moments.length - 1] + 1e6;
  }
  parts.push('\n]}\n');
  writeSync(file, parts.join(''));
  closeSync(file);
}

/** The header and the columns of a packed timeline (docs/formats/page-timeline.md). */
function packed_in(page) {
  const [, text] = /id="llmprof-timeline">([^<]*)</.exec(readFileSync(page, 'latin1'));
  const bytes = gunzipSync(Buffer.from(text, 'base64'));
  const length = bytes.readUInt32LE(8);
  const header = JSON.parse(bytes.subarray(12, 12 + length).toString());
  const column = (name) => {
    const { width, offset, bytes: size } = header.columns.find((one) => one.name === name);
    const values = new Float64Array(size / width);
    for (let plane = 0; plane < width; ++plane)
      for (let i = 0; i < values.length; ++i)
        values[i] += bytes[12 + length + offset + plane * values.length + i] * 2 ** (8 * plane);
    return values;
  };
  return { header, column };
}

/** The same slices in speedscope's own format, a profile for each track and lane. What does not nest is cut. */
function write_for_speedscope(page, path) {
  const { header, column } = packed_in(page);
  const [start, dur, name, depth] = ['start', 'dur', 'name', 'depth'].map(column);
  const profiles = new Map();
  header.tracks.forEach((track, number) => {
    let time = 0;
    for (let i = track.first; i < track.first + track.count; ++i) {
      time += start[i];
      const lane = `${number} ${track.name}${track.kind === 'stream' ? ` ${depth[i]}` : ''}`;
      if (!profiles.has(lane)) profiles.set(lane, []);
      profiles.get(lane).push([time, dur[i], name[i]]);
    }
  });
  const out = [...profiles].map(([lane, slices]) => {
    const events = [];
    const open = [];
    const close = (time) => {
      while (open.length > 0 && open.at(-1)[0] <= time) {
        const [at, frame] = open.pop();
        events.push(`{"type":"C","frame":${frame},"at":${at}}`);
      }
    };
    for (const [at, length, frame] of slices) {
      close(at);
      events.push(`{"type":"O","frame":${frame},"at":${at}}`);
      open.push([Math.min(at + length, open.at(-1)?.[0] ?? Infinity), frame]);
    }
    close(Infinity);
    return `{"type":"evented","name":${JSON.stringify(lane)},"unit":"nanoseconds","startValue":0,"endValue":${header.duration_ns},"events":[${events.join(',')}]}`;
  });
  const frames = JSON.stringify(['', ...header.texts].map((text) => ({ name: text })));
  const schema = 'https://www.speedscope.app/file-format-schema.json';
  const json = `{"$schema":"${schema}","name":"slices.json","shared":{"frames":${frames}},"profiles":[${out.join(',\n')}]}`;
  writeFileSync(path, `speedscope.loadFileFromBase64("slices.json", "${Buffer.from(json).toString('base64')}")`);
  return json.length;
}

// ---- the browser

async function with_browser(use) {
  const profile = mkdtempSync(join(tmpdir(), 'timeline-profile-'));
  const context = await chromium.launchPersistentContext(profile, { ...BROWSER, viewport: VIEWPORT });
  try {
    const page = await context.newPage();
    page.on('pageerror', (error) => console.error(`in the page: ${error.message}`));
    return await use(page);
  } finally {
    // A page that is busy for minutes does not close.
    await Promise.race([context.close(), new Promise((done) => setTimeout(done, 10000))]);
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Milliseconds between animation frames while keys are held, one after the other. */
async function frame_intervals(page, keys) {
  await page.evaluate(() => {
    window.frames_at = [];
    const tick = (now) => {
      window.frames_at.push(now);
      window.frames_wait = requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  for (const key of keys) {
    await page.keyboard.down(key);
    await page.waitForTimeout(700);
    await page.keyboard.up(key);
  }
  const at = await page.evaluate(() => {
    cancelAnimationFrame(window.frames_wait);
    return window.frames_at;
  });
  return at.slice(1).map((time, i) => time - at[i]);
}

const frame_figures = (intervals) => ({
  frames: intervals.length,
  median_ms: Number(median(intervals).toFixed(1)),
  p95_ms: Number(quantile(intervals, 0.95).toFixed(1)),
  at_most_33_ms_frac: Number((intervals.filter((ms) => ms <= 33.4).length / intervals.length).toFixed(4)),
});

const KEYS = ['w', 'd', 'a', 's', 'd', 'w', 'w', 'd', 's', 's', 'a', 's'];
const WORDS = ['gemm', 'aten::', 'cudaLaunchKernel', 'e', '/elementwise.*[0-9]/'];

async function llmprof_once(path, moves) {
  return with_browser(async (page) => {
    await page.goto(`file://${path}#timeline/run`, { waitUntil: 'commit' });
    await page.waitForSelector('#timeline[data-drawn]', { timeout: 120000 });
    const open_ms = await page.evaluate(() => performance.getEntriesByName('timeline-drawn')[0].startTime);
    if (!moves) return { open_ms };
    await page.waitForTimeout(1000);
    await page.focus('.timeline-box');
    const frames = await frame_intervals(page, KEYS);
    const searches = await page.evaluate((words) => {
      const input = document.querySelector('.timeline-bar input');
      return words.map((word) => {
        const from = performance.now();
        input.value = word;
        input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
        return [word, performance.now() - from, document.querySelector('.timeline-found').textContent];
      });
    }, WORDS);
    return { open_ms, frames, searches };
  });
}

async function speedscope_once(index, script, moves) {
  return with_browser(async (page) => {
    const from = Date.now();
    await page.goto(`file://${index}#localProfilePath=${script}`, { waitUntil: 'commit', timeout: 1000 * limit_s });
    try {
      await page.waitForFunction(() => document.title.includes('slices.json'), undefined, {
        timeout: 1000 * limit_s,
        polling: 50,
      });
    } catch {
      return { open_ms: Infinity };
    }
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    const open_ms = Date.now() - from;
    if (!moves) return { open_ms };
    await page.waitForTimeout(1000);
    await page.mouse.click(700, 500);
    return { open_ms, frames: await frame_intervals(page, KEYS) };
  });
}

// ---- all of it

const folder = options.folder ?? mkdtempSync(join(tmpdir(), 'llmprof-timeline-'));
mkdirSync(folder, { recursive: true });
const recording = join(folder, 'recording.json');
const page_path = join(folder, 'page.html');
const copies = Math.ceil(Number(options.slices) / SLICES_PER_COPY);
if (!existsSync(recording)) write_recording(recording, copies);
execFileSync(options.binary, ['analyze', recording, '-q', '--ceilings', 'datasheet', '-o', page_path]);
const { header } = packed_in(page_path);
const runs = Number(options.runs);
const result = {
  machine: { cpu: cpus()[0].model, cores: cpus().length, load_before: loadavg()[0], chromium: '' },
  slices: header.slices,
  merged: header.merged,
  page_mb: Number((statSync(page_path).size / 1e6).toFixed(2)),
};
result.machine.chromium = execFileSync(BROWSER.executablePath, ['--version']).toString().trim();
const opened = [];
for (let run = 0; run < runs; ++run) opened.push(await llmprof_once(page_path, run === 0));
const { frames, searches } = opened[0];
result.llmprof = {
  open_ms: {
    median: Math.round(median(opened.map((one) => one.open_ms))),
    all: opened.map((one) => Math.round(one.open_ms)),
  },
  frames: frame_figures(frames),
  search_ms: searches.map(([word, ms, found]) => ({ word, ms: Number(ms.toFixed(1)), found })),
};
console.error(JSON.stringify(result));
if (options.speedscope) {
  const module = join(options.speedscope, 'node_modules/speedscope');
  const script = join(folder, 'speedscope_slices.js');
  const bytes = write_for_speedscope(page_path, script);
  const others = [];
  for (let run = 0; run < runs; ++run) {
    others.push(await speedscope_once(join(module, 'dist/release/index.html'), script, run === 0));
    if (others[run].open_ms > 30000) break; // once is enough
  }
  const open_ms = others.map((one) => one.open_ms);
  result.speedscope = {
    version: JSON.parse(readFileSync(join(module, 'package.json'))).version,
    input_mb: Number((bytes / 1e6).toFixed(1)),
    ...(open_ms.includes(Infinity)
      ? { not_open_after_s: limit_s }
      : { open_ms: { median: median(open_ms), all: open_ms }, frames: frame_figures(others[0].frames) }),
  };
}
result.machine.load_after = loadavg()[0];
result.goals = {
  [`file at most ${GOALS.page_mb} MB`]: result.page_mb <= GOALS.page_mb,
  [`drawn at most ${GOALS.open_ms} ms after navigation, median of ${runs}`]:
    result.llmprof.open_ms.median <= GOALS.open_ms,
  [`${100 * GOALS.smooth_frac} % of frame intervals at most 33 ms`]:
    result.llmprof.frames.at_most_33_ms_frac >= GOALS.smooth_frac,
  [`each search under ${GOALS.search_ms} ms`]: result.llmprof.search_ms.every(({ ms }) => ms < GOALS.search_ms),
};
const text = JSON.stringify(result, null, 2);
console.log(text);
if (options.write) writeFileSync(options.write, `${text}\n`);
if (!options.folder) rmSync(folder, { recursive: true, force: true });
process.exit(Object.values(result.goals).every(Boolean) ? 0 : 1);
