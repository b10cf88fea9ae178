// The timeline of real recordings in headless Chromium: slices where they belong, search and totals as counted here from the
// recording itself, everything by keyboard, and not a word on the console.
//   node timeline_test.mjs --binary LLMPROF --source FOLDER
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { open_browser, open_page } from './browser.mjs';
import { recording_of } from './pages.mjs';

const { values } = parseArgs({ options: { binary: { type: 'string' }, source: { type: 'string' } } });
const web = join(values.source, 'web');

// As web/src/timeline/draw.ts and layout.ts have them, px.
const LABELS = 190;
const RULER = 26;
const FIRST_TRACK = 24 + 3;
const ROW = 17;
const TRACK_GAP = 7;

const folder = mkdtempSync(join(tmpdir(), 'llmprof-timeline-'));
let browser;
let axe;

before(async () => {
  ({ browser, axe } = await open_browser(web));
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** The page of a recording, and its events with times in ns from the first on. */
function page_of(name, path) {
  const file = join(folder, `${name}.html`);
  execFileSync(values.binary, ['analyze', path, '--format', 'html', '-o', file, '-q', '--ceilings', 'datasheet'], {
    env: { ...process.env, XDG_STATE_HOME: folder },
  });
  const bytes = readFileSync(path);
  const text = (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
  // Times have more digits than a number: they are read as whole and thousandths of a microsecond.
  const exact = text.replace(
    /"(ts|dur)":\s*(\d+)(?:\.(\d{1,3}))?\d*/g,
    (_, key, whole, part = '') => `"${key}": "${whole}${part.padEnd(3, '0')}"`,
  );
  const events = JSON.parse(exact).traceEvents.filter((event) => event.ph === 'X' && BigInt(event.ts ?? 0) > 0n);
  return { file, events };
}

const GPU = ['kernel', 'gpu_memcpy', 'gpu_memset'];
const SHOWN = [
  ...GPU,
  'cpu_op',
  'user_annotation',
  'gpu_user_annotation',
  'cuda_runtime',
  'cuda_driver',
  'python_function',
];

/** The header and the slices of a page's timeline, by docs/formats/page-timeline.md. */
function timeline_in(file) {
  const [, text] = /id="llmprof-timeline">([^<]*)</.exec(readFileSync(file, 'latin1'));
  const bytes = gunzipSync(Buffer.from(text, 'base64'));
  const length = bytes.readUInt32LE(8);
  const header = JSON.parse(bytes.subarray(12, 12 + length).toString());
  const column = (name) => {
    const { width, offset, bytes: size } = header.columns.find((one) => one.name === name);
    return Array.from({ length: size / width }, (_, i) => {
      let value = 0;
      for (let plane = 0; plane < width; ++plane)
        value += bytes[12 + length + offset + (plane * size) / width + i] * 2 ** (8 * plane);
      return value;
    });
  };
  const [start, dur, name, depth, flow] = ['start', 'dur', 'name', 'depth', 'flow'].map(column);
  const slices = header.tracks.flatMap((track) => {
    let time = 0;
    let target = 0;
    return Array.from({ length: track.count }, (_, i) => {
      const at = track.first + i;
      time += start[at];
      const code = flow[at] - 1;
      if (code >= 0) target += code % 2 === 0 ? code / 2 : -(code + 1) / 2;
      return {
        kind: track.kind,
        start: time,
        dur: dur[at],
        name: header.texts[name[at] - 1] ?? '',
        depth: depth[at],
        flow: code < 0 ? -1 : target,
      };
    });
  });
  return { header, slices };
}

const with_timeline = (file, hash, use, options = {}) =>
  open_page(browser, file, '#timeline[data-drawn]', use, { hash, ...options });

const said = (page) => page.textContent('.timeline-said');
const search = async (page, words) => {
  await page.fill('.timeline-bar input', words);
  await page.press('.timeline-bar input', 'Enter');
  return Number((await page.textContent('.timeline-found')).split(' ')[0].replace(/,/g, ''));
};

/** Where an address that shows [start, end) puts a moment. */
function x_of(width, start, end, time) {
  const around = Math.max((end - start) * 0.04, 1);
  return LABELS + ((time - start + around) / (end - start + 2 * around)) * (width - LABELS);
}

const eager = page_of('eager', join(values.source, 'tests/golden/inputs/kineto_llama-3.1-8b_unlabelled.json.gz'));
const packed = timeline_in(eager.file);

test('slices of the recording are those of the page', () => {
  const kernels = eager.events
    .filter((event) => GPU.includes(event.cat))
    .map((event) => `${event.name} ${Number(event.dur)}`)
    .sort();
  const shown = packed.slices
    .filter((slice) => slice.kind === 'stream')
    .map((slice) => `${slice.name} ${slice.dur}`)
    .sort();
  assert.equal(shown.length, kernels.length);
  assert.equal(
    shown.findIndex((slice, i) => slice !== kernels[i]),
    -1,
    'a kernel with another name or duration',
  );
});

test('a kernel stands where it ran, in the colour of its category', async () => {
  const stream = packed.slices.filter((slice) => slice.kind === 'stream' && slice.depth === 0 && slice.dur > 2000);
  const kernel = stream[Math.floor(stream.length / 2)];
  const [start, end] = [kernel.start - 20000, kernel.start + kernel.dur + 20000];
  await with_timeline(eager.file, `#timeline?start=${start}&end=${end}`, async (page) => {
    const box = await page.locator('.timeline-box canvas').boundingBox();
    const x = x_of(box.width, start, end, kernel.start + kernel.dur / 2);
    // Below stages and critical path.
    const y = RULER + FIRST_TRACK + 2 * (ROW + TRACK_GAP) + ROW / 2;
    await page.mouse.move(box.x + x, box.y + y);
    const hint = await page.textContent('.timeline-hint');
    assert.ok(hint.startsWith(kernel.name.slice(0, 100)), `${hint} at the place of ${kernel.name}`);
    const color = await page.evaluate(
      ([px, py]) => {
        const canvas = document.querySelector('.timeline-box canvas');
        return [...canvas.getContext('2d').getImageData(px, py, 1, 1).data].join();
      },
      [Math.round(x_of(box.width, start, end, kernel.start) + 2), Math.round(y + ROW / 2 - 4)],
    );
    assert.notEqual(color, '255,255,255,255');
    await page.mouse.click(box.x + x, box.y + y);
    const details = await page.textContent('.timeline-details');
    assert.ok(details.includes(`(${kernel.dur.toLocaleString('en')} ns)`), details);
    assert.match(details, /Launched by/);
    // Its launch is one click away.
    await page.click('.timeline-details dd button');
    assert.match(await said(page), /^Selected: c(uda|u)\w*Launch/);
  });
});

/** What the words of the selected slice say, by term. */
const details_of = (page) =>
  page.$$eval('.timeline-details dt', (all) =>
    Object.fromEntries(all.map((one) => [one.textContent, one.nextElementSibling.textContent])),
  );
const ns_of = (text) => {
  const [, value, unit] = /^([\d.]+) (ns|us|ms|s)/.exec(text) ?? [null, '0', 'ns'];
  return Number(value) * { ns: 1, us: 1e3, ms: 1e6, s: 1e9 }[unit];
};
const about = (found, wanted) => Math.abs(found - wanted) <= 1 + 1e-3 * wanted;

test('a slice says where in its step it is, and a wait what it waited for', async () => {
  const end_of = (slice) => slice.start + slice.dur;
  const steps = packed.slices.filter((slice) => slice.kind === 'stages');
  // The longest wait, counted from the recording: what ended last before it returned, of what was launched before it.
  const waits = eager.events.filter((event) => /Synchronize/.test(event.name) && event.cat === 'cuda_runtime');
  const longest = waits.reduce((a, b) => (Number(b.dur) > Number(a.dur) ? b : a));
  const wait_end = BigInt(longest.ts) + BigInt(longest.dur);
  const launched = new Map(
    eager.events.filter((event) => /cuda_(runtime|driver)/.test(event.cat)).map((e) => [e.args.correlation, e]),
  );
  const awaited = eager.events
    .filter((event) => GPU.includes(event.cat) && BigInt(event.ts) + BigInt(event.dur) <= wait_end)
    .filter((event) => BigInt(launched.get(event.args.correlation)?.ts ?? 0) < BigInt(longest.ts))
    .reduce((a, b) => (BigInt(b.ts) + BigInt(b.dur) > BigInt(a.ts) + BigInt(a.dur) ? b : a));
  await with_timeline(eager.file, '#timeline/run', async (page) => {
    const wait = packed.slices
      .filter((slice) => slice.kind === 'calls' && slice.name === longest.name)
      .find((slice) => slice.dur === Number(longest.dur));
    const select = async (slice, words) => {
      await page.evaluate(
        ([start, end]) => (location.hash = `timeline?start=${start}&end=${end}`),
        [slice.start - 1, end_of(slice) + 1],
      );
      const same = packed.slices
        .filter((one) => one.name === slice.name)
        .sort((a, b) => a.start - b.start || packed.slices.indexOf(a) - packed.slices.indexOf(b));
      await page.focus('.timeline-box');
      await page.keyboard.press('Escape'); // so that the search begins with the first
      await search(page, words);
      await page.focus('.timeline-box');
      for (let i = 0; i < same.indexOf(slice); ++i) await page.keyboard.press('n');
    };
    await select(wait, `/^${longest.name}$/`);
    let details = await details_of(page);
    assert.ok(details.Duration.includes(`(${wait.dur.toLocaleString('en')} ns)`), details.Duration);
    assert.ok(details['Waited for'].startsWith(awaited.name.slice(0, 60)), details['Waited for']);
    const before = ns_of(/which ended (.*) before it returned/.exec(details['Waited for'])[1]);
    assert.ok(about(before, Number(wait_end - BigInt(awaited.ts) - BigInt(awaited.dur))), details['Waited for']);
    const step = steps.find((one) => one.start <= wait.start && wait.start < end_of(one));
    const of_its_name = steps.filter((one) => one.name === step.name);
    assert.ok(about(ns_of(details.Step), wait.start - step.start), details.Step);
    assert.ok(
      details.Step.endsWith(
        `after the start of ${step.name}, ${of_its_name.indexOf(step) + 1} of ${of_its_name.length}`,
      ),
      details.Step,
    );
    // The link leads to the activity, which says who waited for it.
    await page.locator('.timeline-details dt:text-is("Waited for") + dd button').first().click();
    details = await details_of(page);
    assert.ok(details.Name.startsWith(awaited.name.slice(0, 60)), details.Name);
    assert.ok(details['Waited for by'].includes(longest.name), details['Waited for by']);
    // A launch that runs ahead belongs to the step of its kernel.
    const ahead = packed.slices.find((slice) => slice.kind === 'stream' && slice.flow >= 0);
    await select(packed.slices[ahead.flow], `/^${packed.slices[ahead.flow].name}$/`);
    details = await details_of(page);
    const its = steps.find((one) => one.start <= ahead.start && ahead.start < end_of(one));
    const off = packed.slices[ahead.flow].start - its.start;
    assert.ok(about(ns_of(details.Step), Math.abs(off)), `${details.Step}: ${off} ns`);
    assert.match(details.Step, off < 0 ? /before the start of .* whose work it launches/ : /after the start of/);
  });
});

test('.item() says what the wait inside it waited for', async () => {
  const { file, events } = page_of('item', join(values.source, 'tests/golden/inputs/item_per_step.json.gz'));
  const end_of = (event) => BigInt(event.ts) + BigInt(event.dur);
  const item = events.find((event) => event.name === 'aten::item');
  const wait = events.find(
    (event) =>
      event.name === 'cudaStreamSynchronize' && BigInt(event.ts) >= BigInt(item.ts) && end_of(event) <= end_of(item),
  );
  assert.ok(wait, 'a wait inside aten::item');
  const awaited = events
    .filter((event) => GPU.includes(event.cat) && end_of(event) <= end_of(wait))
    .reduce((a, b) => (end_of(b) > end_of(a) ? b : a));
  await with_timeline(file, '#timeline/run', async (page) => {
    await search(page, '/^aten::item$/');
    const details = await details_of(page);
    assert.equal(details.Name, 'aten::item');
    assert.ok(details['Waited for'].startsWith(awaited.name.slice(0, 60)), details['Waited for']);
    assert.match(details['Waited for'], / in cudaStreamSynchronize, which/);
    await page.locator('.timeline-details dt:text-is("Waited for") + dd button').first().click();
    assert.ok((await details_of(page)).Name.startsWith(awaited.name.slice(0, 60)));
  });
});

// Pieces of the critical path follow each other without a gap, the shortest next to the longest.
test('what is wide enough to see is drawn, whatever narrow slices are beside it', async () => {
  const { start_ns: start, end_ns } = packed.header.stages[0].median;
  const end = start + Math.round((end_ns - start) / 10);
  const step = packed.slices.filter((slice) => slice.kind === 'path' && slice.start >= start && slice.start < end);
  await with_timeline(eager.file, `#timeline?start=${start}&end=${end}`, async (page) => {
    const { width } = await page.locator('.timeline-box canvas').boundingBox();
    const places = step
      .map((slice) => [slice.start, slice.start + slice.dur].map((time) => x_of(width, start, end, time)))
      .filter(([left, right]) => right - left >= 4)
      .map(([left, right]) => Math.round((left + right) / 2));
    assert.ok(places.length >= 10, `${places.length} wide pieces`);
    const y = Math.round(RULER + FIRST_TRACK + ROW + TRACK_GAP + ROW / 2 + 5);
    const blank = await page.evaluate(
      ([xs, py]) => {
        const canvas = document.querySelector('.timeline-box canvas');
        const row = canvas.getContext('2d').getImageData(0, py, canvas.width, 1).data;
        return xs.filter((px) => row[4 * px] === 255 && row[4 * px + 1] === 255 && row[4 * px + 2] === 255).length;
      },
      [places, y],
    );
    assert.equal(blank, 0, `of ${places.length} pieces`);
  });
});

test('search counts what the recording holds', async () => {
  const named = (meant) => eager.events.filter((event) => SHOWN.includes(event.cat) && meant(event.name)).length;
  await with_timeline(eager.file, '#timeline/run', async (page) => {
    assert.equal(
      await search(page, 'cudaLaunchKernel'),
      named((name) => name.toLowerCase().includes('cudalaunchkernel')),
    );
    assert.equal(
      await search(page, 'ATEN::MM'),
      named((name) => name.toLowerCase().includes('aten::mm')),
    );
    assert.equal(
      await search(page, '/^aten::(mm|add)$/'),
      named((name) => /^aten::(mm|add)$/.test(name)),
    );
    assert.equal(await search(page, 'no such name at all'), 0);
    await page.fill('.timeline-bar input', '/(/');
    await page.press('.timeline-bar input', 'Enter');
    assert.equal(await page.textContent('.timeline-found'), 'no such expression');
    // n and N walk them in time and around the ends.
    const expected = packed.slices
      .filter((slice) => slice.name === 'aten::embedding')
      .map((slice) => slice.start)
      .sort((a, b) => a - b);
    await search(page, '/^aten::embedding$/');
    const first = await said(page);
    await page.focus('.timeline-box');
    for (let i = 1; i < expected.length; ++i) await page.keyboard.press('n');
    assert.notEqual(await said(page), first);
    await page.keyboard.press('n');
    assert.equal(await said(page), first);
    await page.keyboard.press('Shift+N');
    assert.notEqual(await said(page), first);
  });
});

test('totals of an area are those of its slices', async () => {
  await with_timeline(eager.file, '#timeline/run', async (page) => {
    await page.focus('.timeline-box');
    await page.keyboard.press('r');
    const rows = await page.$$eval('.timeline-totals tbody tr', (list) =>
      list.map((row) => [...row.children].map((cell) => cell.dataset.ns ?? cell.textContent)),
    );
    assert.equal(rows.length, 50);
    const words = {
      stream: 'GPU',
      operators: 'operator',
      calls: 'CUDA call',
      idle: 'GPU idle',
      stages: 'stage',
      path: 'critical path',
      recorder: 'recorder',
    };
    const sums = new Map();
    for (const slice of packed.slices) {
      const key = `${words[slice.kind]} ${slice.name}`;
      const sum = sums.get(key) ?? { count: 0, ns: 0 };
      sums.set(key, { count: sum.count + 1, ns: sum.ns + slice.dur });
    }
    for (const [name, kind, count, ns] of rows) {
      const [key] = [...sums.keys()].filter((one) => one.startsWith(`${kind} ${name.replace(/…$/, '')}`));
      const same = [...sums]
        .filter(([one]) => one.startsWith(`${kind} ${name.replace(/…$/, '')}`))
        .some(([, sum]) => sum.count === Number(count.replace(/,/g, '')) && sum.ns === Number(ns));
      assert.ok(key !== undefined && same, `${name}, ${kind}: ${count}, ${ns} ns`);
    }
    // An operator's calls, counted from the recording.
    const mm = eager.events.filter((event) => event.cat === 'cpu_op' && event.name === 'aten::mm');
    const row = rows.find(([name, kind]) => name === 'aten::mm' && kind === 'operator');
    assert.equal(Number(row[2].replace(/,/g, '')), mm.length);
    assert.equal(
      Number(row[3]),
      mm.reduce((sum, event) => sum + Number(event.dur), 0),
    );
  });
});

test('of slices that an edge cuts, an area counts the part inside, and says so', async () => {
  const stream = packed.slices.filter((slice) => slice.kind === 'stream' && slice.depth === 0);
  // From the middle of one kernel to that of another, with the margin that a view has.
  const [first, last] = [stream[100], stream[140]];
  const [from, to] = [first.start + first.dur / 2, last.start + last.dur / 2];
  const margin = (to - from) * (0.04 / 1.08);
  await with_timeline(eager.file, `#timeline?start=${from + margin}&end=${to - margin}`, async (page) => {
    await page.focus('.timeline-box');
    await page.keyboard.press('r');
    const caption = await page.textContent('.timeline-totals caption');
    const reach = packed.slices.filter((slice) => slice.start < to && slice.start + slice.dur > from);
    const cut = reach.filter((slice) => slice.start < from || slice.start + slice.dur > to);
    assert.ok(cut.length >= 2);
    assert.match(
      caption,
      new RegExp(`: ${reach.length} slices .*; of the ${cut.length} that its edges cut, only the part inside counts`),
    );
    const shown = await page.$$eval('.timeline-totals tbody tr', (list) =>
      list.filter((row) => row.cells[1].textContent === 'GPU').map((row) => Number(row.cells[3].dataset.ns)),
    );
    const inside = new Map();
    for (const slice of reach.filter((one) => one.kind === 'stream')) {
      const part = Math.min(slice.start + slice.dur, to) - Math.max(slice.start, from);
      inside.set(slice.name, (inside.get(slice.name) ?? 0) + part);
    }
    for (const ns of shown)
      assert.ok(
        [...inside.values()].some((sum) => Math.abs(sum - ns) < 2),
        `${ns} ns, not ${[...inside.values()]}`,
      );
    assert.ok(shown.length >= 3);
  });
});

test('a dragged area counts the slices within', async () => {
  const { median } = packed.header.stages[0];
  await with_timeline(eager.file, '#timeline', async (page) => {
    const box = await page.locator('.timeline-box canvas').boundingBox();
    const [from, to] = [median.from_ns, median.end_ns];
    const y = RULER + FIRST_TRACK + 2 * (ROW + TRACK_GAP) + 4;
    const x = [0.25, 0.75].map((share) => Math.round(x_of(box.width, from, to, from + share * (to - from))));
    await page.mouse.move(box.x + x[0], box.y + y);
    await page.mouse.down();
    await page.mouse.move(box.x + x[1], box.y + y + 4, { steps: 5 });
    await page.mouse.up();
    const caption = await page.textContent('.timeline-totals caption');
    const shown = Number(/: ([\d,]+) slices/.exec(caption)[1].replace(/,/g, ''));
    // The canvas lies at whole pixels or between them: a slice at either edge may be in or out.
    const around = Math.max((to - from) * 0.04, 1);
    const time = (px) => from - around + ((px - LABELS) / (box.width - LABELS)) * (to - from + 2 * around);
    const count = (a, b) =>
      packed.slices.filter(
        (slice) => slice.kind === 'stream' && slice.depth === 0 && slice.start < b && slice.start + slice.dur > a,
      ).length;
    assert.ok(
      count(time(x[0] + 1), time(x[1] - 1)) <= shown && shown <= count(time(x[0] - 1), time(x[1] + 1)),
      `${shown} slices`,
    );
    assert.ok(shown > 100);
  });
});

test('what the GPU did stands above its counters', async () => {
  const file = join(folder, 'counters.html');
  const recording = join(values.source, 'tests/golden/inputs/nsys_2026.sqlite');
  execFileSync(values.binary, ['analyze', recording, '--format', 'html', '-o', file, '-q', '--ceilings', 'datasheet'], {
    env: { ...process.env, XDG_STATE_HOME: folder },
  });
  const { header, slices } = timeline_in(file);
  const group = header.tracks.find((track) => track.kind === 'stream').group;
  assert.equal(group, 0);
  assert.ok(header.counters.some((counter) => counter.group === group));
  // The longest activity of the first stream, below the tracks that stand before it.
  const tracks = header.tracks.filter((track) => track.group === group);
  const at = tracks.findIndex((track) => track.kind === 'stream');
  const rows = (track) => 1 + Math.max(...slices.slice(track.first, track.first + track.count).map((one) => one.depth));
  const above = tracks.slice(0, at).reduce((sum, track) => sum + rows(track) * ROW + TRACK_GAP, 0);
  const stream = slices.slice(tracks[at].first, tracks[at].first + tracks[at].count);
  const kernel = stream.filter((slice) => slice.depth === 0).reduce((a, b) => (b.dur > a.dur ? b : a));
  const [start, end] = [kernel.start, kernel.start + kernel.dur];
  await with_timeline(file, `#timeline?start=${start}&end=${end}`, async (page) => {
    const box = await page.locator('.timeline-box canvas').boundingBox();
    const x = x_of(box.width, start, end, kernel.start + kernel.dur / 2);
    await page.mouse.move(box.x + x, box.y + RULER + FIRST_TRACK + above + ROW / 2);
    const hint = await page.textContent('.timeline-hint');
    assert.ok(hint.startsWith(kernel.name.slice(0, 100)), `${hint} at the place of ${kernel.name}`);
  });
});

test('everything works by keyboard', async () => {
  await with_timeline(eager.file, '#timeline', async (page) => {
    assert.match(await said(page), /^decode: the median of 3 steady steps/);
    await page.focus('.timeline-box');
    await page.keyboard.press('ArrowDown');
    assert.match(await said(page), /Stages of GPU 0/);
    await page.keyboard.press('ArrowDown');
    assert.match(await said(page), /Critical path of GPU 0/);
    await page.keyboard.press('ArrowDown');
    const kernel = await said(page);
    assert.match(kernel, /Stream 7 of GPU 0/);
    await page.keyboard.press('ArrowRight');
    assert.notEqual(await said(page), kernel);
    await page.keyboard.press('ArrowLeft');
    assert.equal(await said(page), kernel);
    await page.keyboard.press('Enter');
    assert.equal(await said(page), `Selected: ${kernel}`);
    const shot = () =>
      page.evaluate(
        () =>
          new Promise((done) =>
            requestAnimationFrame(() =>
              requestAnimationFrame(() => done(document.querySelector('.timeline-box canvas').toDataURL())),
            ),
          ),
      );
    let last = await shot();
    for (const key of ['f', 'm', 's', 'd', 'w', 'a', 'c']) {
      await page.keyboard.press(key);
      const next = await shot();
      assert.notEqual(next, last, `${key} changes nothing`);
      last = next;
    }
    await page.keyboard.press('?');
    assert.ok(await page.isVisible('.timeline-help'));
    await page.keyboard.press('/');
    assert.ok(await page.evaluate(() => document.activeElement.type === 'search'));
    await page.keyboard.press('Escape');
    assert.ok(await page.evaluate(() => document.activeElement.classList.contains('timeline-box')));
    await page.keyboard.press('Escape');
    assert.equal(await said(page), 'Nothing selected');
    await page.getByRole('button', { name: 'Slowest step' }).press('Enter');
    assert.match(await said(page), /the slowest of 3/);
    await page.getByRole('button', { name: 'Table of what is visible' }).press('Enter');
    assert.match(await page.textContent('.timeline-totals caption'), /^Visible: [\d,]+ slices/);
  });
});

test('the critical path is a track, and marked on what it lies on', async () => {
  const path = packed.slices.filter((slice) => slice.kind === 'path');
  const { median } = packed.header.stages[0];
  const within = path.filter((piece) => piece.start >= median.start_ns && piece.start < median.end_ns);
  assert.equal(
    within.reduce((sum, piece) => sum + piece.dur, 0),
    within.at(-1).start + within.at(-1).dur - within[0].start,
  );
  const gap = Math.abs(within.at(-1).start + within.at(-1).dur - median.end_ns);
  assert.ok(gap < 0.05 * (median.end_ns - median.start_ns), `the path ends ${gap} ns from the step's end`);
  await with_timeline(eager.file, '#timeline', async (page) => {
    await search(page, 'GPU work');
    assert.match(await page.textContent('.timeline-details'), /a piece of it/);
    await page.click('.timeline-details dd button');
    assert.match(await said(page), /on the critical path$/);
  });
});

test('names of any kind stay text, in both themes', async () => {
  const hostile = [
    '</script><img src=x onerror=alert(1)>',
    '<b>bold</b>',
    'a\u202egnp.exe',
    '"\'&lt;',
    'x'.repeat(5000),
  ];
  const recording = join(folder, 'hostile.json');
  writeFileSync(recording, recording_of(hostile));
  const { file } = page_of('hostile', recording);
  for (const colorScheme of ['light', 'dark'])
    await with_timeline(
      file,
      '#timeline/run',
      async (page) => {
        assert.equal(await search(page, 'onerror'), 1);
        const details = await page.textContent('.timeline-details');
        assert.ok(details.includes(hostile[0]), details);
        assert.equal(await search(page, 'gnp.exe'), 1);
        assert.match(await page.textContent('.timeline-details'), /a\\u202egnp\.exe/);
        assert.equal(await page.locator('.timeline img, .timeline b').count(), 0);
      },
      { colorScheme },
    );
});

test('axe finds no violation in either theme, with everything open', async () => {
  for (const colorScheme of ['light', 'dark'])
    await with_timeline(
      eager.file,
      '#timeline',
      async (page) => {
        const violations = async () => {
          const result = await page.evaluate(() => window.axe.run('#timeline'));
          return result.violations.map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`);
        };
        await page.evaluate(axe);
        await page.focus('.timeline-box');
        await page.keyboard.press('?');
        await search(page, 'cudaLaunchKernel');
        assert.deepEqual(await violations(), []);
        await page.focus('.timeline-box');
        await page.keyboard.press('r');
        assert.deepEqual(await violations(), []);
      },
      { colorScheme },
    );
});
