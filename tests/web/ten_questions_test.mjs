// The ten questions of docs/howto/read-the-page.md, answered from the page alone: what a reader sees of it in headless
// Chromium, found by headings and captions, never its embedded JSON. The answers must be those that ten_questions.py computes by
// SQL from the tables of the same recording (`llmprof export --to sqlite`), to the digits that the page shows.
//   node ten_questions_test.mjs --binary LLMPROF --source FOLDER [--print]
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { parseArgs } from 'node:util';
import { open_browser, open_page } from './browser.mjs';

const { values } = parseArgs({
  options: { binary: { type: 'string' }, source: { type: 'string' }, print: { type: 'boolean' } },
});
const folder = mkdtempSync(join(tmpdir(), 'llmprof-questions-'));
const env = { ...process.env, XDG_STATE_HOME: folder, XDG_CACHE_HOME: folder };
const inputs = join(values.source, 'tests/golden/inputs');
const demo = join(values.source, 'data/demo');
const RECORDINGS = {
  eager: join(demo, 'kineto_llama-3.1-8b_unlabelled.json.gz'),
  graph: join(demo, 'kineto_qwen2.5-0.5b_cuda_graph.json.gz'),
  stacks: join(inputs, 'kineto_qwen2.5-0.5b_memory_stack.json.gz'),
  item: join(inputs, 'item_per_step.json.gz'),
};
let browser;

before(async () => {
  ({ browser } = await open_browser(join(values.source, 'web')));
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

// ---- what a reader sees

/** The visible text of a section, which the navigation leads to by its word. */
async function section(page, word) {
  const link = page.locator(`nav a:text-is("${word}")`);
  const address = await link.getAttribute('href');
  await link.click();
  await page.waitForFunction((hash) => location.hash === hash, address);
  const heading = page.locator(`main section:has(h2:text-is("${word}"))`);
  assert.ok(await heading.isVisible(), word);
  return heading;
}

/** The rows of the table with this caption, as objects by its headings: visible text alone. */
async function rows_of(place, caption) {
  const table = place.locator('table').filter({ has: place.page().locator(`caption:has-text("${caption}")`) });
  assert.equal(await table.count(), 1, `a table "${caption}"`);
  assert.ok(await table.isVisible());
  return table.evaluate((one) => {
    const head = [...one.tHead.rows[0].cells].map((cell) => cell.innerText.trim());
    const rows = [...one.tBodies].flatMap((body) => [...body.rows]);
    return rows
      .filter((row) => row.getClientRects().length > 0)
      .map((row) => Object.fromEntries([...row.cells].map((cell, i) => [head[i], cell.innerText.trim()])));
  });
}

const UNITS = { ns: 1e-6, us: 1e-3, ms: 1, s: 1e3, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, '%': 0.01 };
const POWERS = { '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };

/** A number as the page has it, and by how much it may be off for its digits: in ms, bytes, shares, FLOP or FLOP/s. */
function number_in(text) {
  const [, digits, unit] = /^(-?[\d.,]+(?:e-?\d+)?) ?(\S*)/.exec(text) ?? assert.fail(`no number: ${text}`);
  const work = /^([kMGTP]?)FLOP(\/s)?$/.exec(unit);
  const scale = work ? POWERS[work[1]] : (UNITS[unit] ?? 1);
  const plain = digits.replaceAll(',', '');
  const step = 10 ** -(plain.split('.')[1]?.length ?? 0);
  return { value: Number(plain) * scale, off: 0.51 * step * scale };
}

function agrees(text, truth, what) {
  const { value, off } = number_in(text);
  assert.ok(
    Math.abs(value - truth) <= off + 1e-9 * Math.abs(truth),
    `${what}: the page says ${text}, the tables ${truth}`,
  );
}

/** The name before its template and arguments: what is left of it on the page. */
const stem = (name) => /(\w+)\s*(?:<.*)?$/s.exec(name.split('(')[0].split('<')[0].trim())?.[1] ?? name;

/** Whether host code is more than a twentieth of what the GPU waits for: which code that was is a question only then. */
const waits_for_code = (truth) => truth.host_work_frac > 0.05;

// ---- the questions; each returns what the page answers

const QUESTIONS = [
  async function how_long_do_tokens_take(page, truth) {
    const figures = await (await section(page, 'Answer')).locator('.figure').allInnerTexts();
    const answers = [];
    for (const [label, kind] of [
      ['TTFT', 'prefill'],
      ['TPOT', 'decode'],
    ]) {
      const figure = figures.find((text) => text.startsWith(label));
      const stage = Object.values(truth.stages).find((one) => one.kind === kind);
      const shown = figure?.split('\n').filter((line) => line.trim() !== '') ?? [];
      if (!stage) {
        assert.ok(
          !figure || !/^[\d.]+ (us|ms|s)$/.test(shown[1]),
          `${label} of a recording without ${kind}: ${figure}`,
        );
        continue;
      }
      agrees(shown[1], stage.median_ms, label);
      const interval = shown.find((line) => line.startsWith('95 %:'));
      if (stage.walls_ms.length < 3) assert.ok(!interval && shown.some((line) => /no interval/.test(line)), figure);
      else {
        const [low, high] = /95 %: (.*) to (.*)/.exec(interval).slice(1).map(number_in);
        assert.ok(low.value <= stage.median_ms + low.off && stage.median_ms - high.off <= high.value, figure);
        assert.ok(low.value + low.off >= Math.min(...stage.walls_ms), figure);
        assert.ok(high.value - high.off <= Math.max(...stage.walls_ms), figure);
      }
      const count = shown.map((line) => /of (one|\d+) (request|step)/.exec(line)?.[1]).find(Boolean);
      assert.equal(count === 'one' ? 1 : Number(count), stage.walls_ms.length, figure);
      answers.push(`${label} ${shown[1]} (${interval ?? 'no interval'})`);
    }
    return answers.join(', ');
  },

  async function which_stage_bound_by_what(page, truth) {
    const rows = await rows_of(await section(page, 'Answer'), 'Verdict per stage');
    assert.deepEqual(new Set(rows.map((row) => row.stage)), new Set(Object.keys(truth.stages)));
    for (const row of rows) {
      const stage = truth.stages[row.stage];
      assert.equal(Number(row.n), stage.walls_ms.length);
      agrees(row['of window'], stage.window_frac, `${row.stage}: of window`);
      agrees(row['GPU idle'], stage.idle_frac, `${row.stage}: GPU idle`);
      agrees(row['median step'], stage.median_ms, `${row.stage}: median step`);
      // The device waits for the host where it is idle most of the time, and not where it is hardly ever.
      if (stage.idle_frac > 0.6) assert.match(row.bound, /^overhead/);
      if (stage.idle_frac < 0.3) assert.doesNotMatch(row.bound, /^overhead, the GPU waits for the host/);
    }
    const largest = Object.entries(truth.stages).sort((a, b) => b[1].wall_ms - a[1].wall_ms)[0][0];
    assert.equal(rows[0].stage, largest, 'the stage that takes most stands first');
    return rows.map((row) => `${row.stage} ${row['of window']}: ${row.bound}`).join('; ');
  },

  async function which_kernel(page, truth) {
    const [first] = await rows_of(await section(page, 'Kernels'), 'Kernels and copies by name');
    const [name, stage, calls, total, share] = truth.kernels[0];
    assert.ok(first.name.includes(stem(name)), `${first.name}, not ${name}`);
    assert.equal(first.stage, stage);
    assert.equal(Number(first.calls.replaceAll(',', '')), calls);
    agrees(first.total, total, 'total');
    agrees(first['share of the recording'], share, 'share');
    return `${first.name} (${first.stage}), ${first.total}, ${first['share of the recording']}`;
  },

  async function what_kind_of_work(page, truth) {
    const rows = await rows_of(await section(page, 'Categories'), 'Where the device time goes');
    const answers = [];
    for (const [stage, { categories }] of Object.entries(truth.stages)) {
      const first = rows.find((row) => row.stage === stage);
      assert.equal(first.category, categories[0][0], stage);
      agrees(first.time, categories[0][1], `${stage}: ${first.category}`);
      answers.push(`${stage}: ${first.category} ${first['share of the stage']}`);
    }
    return answers.join(', ');
  },

  async function why_is_the_gpu_idle(page, truth) {
    const rows = await rows_of(await section(page, 'Idle causes'), 'Idle time by cause and stage');
    const answers = [];
    for (const [stage, { causes, wall_ms, idle_frac }] of Object.entries(truth.stages)) {
      const own = rows.filter((row) => row.stage === stage);
      assert.equal(own[0].cause, causes[0][0], stage);
      agrees(own[0].total, causes[0][1], `${stage}: ${own[0].cause}`);
      // All causes are all of the idle time, which here comes from the activities of the device.
      const sum = own.reduce((all, row) => all + number_in(row.total).value, 0);
      assert.ok(
        Math.abs(sum / (wall_ms * idle_frac) - 1) < 2e-3,
        `${stage}: causes of ${sum} ms, idle ${wall_ms * idle_frac}`,
      );
      answers.push(`${stage}: ${own[0].cause} ${own[0].total}, in ${own[0]['top operator']}`);
    }
    return answers.join('; ');
  },

  async function what_to_change_first(page, truth) {
    const first = (await section(page, 'Answer')).locator('.finding').first();
    const text = await first.innerText();
    const [title, ...rest] = text.split('\n').filter((line) => line.trim() !== '');
    const gain = rest.find((line) => /(TPOT|TTFT) .* → /.test(line));
    const stage = truth.stages[/(\w+): /.exec(title)?.[1]];
    if (stage) {
      assert.ok(gain, `what does it bring? ${text}`);
      const [from, to] = /(?:TPOT|TTFT) (.*) → (\S+ \S+)/.exec(gain).slice(1).map(number_in);
      assert.ok(Math.abs(from.value - stage.median_ms) <= from.off, `${gain}: a step takes ${stage.median_ms} ms`);
      assert.ok(to.value < from.value, gain);
      // Waiting for the host can be saved, what the GPU works cannot.
      if (/waits .* for the host/.test(title)) {
        const busy = Math.min(...stage.busy_ms);
        assert.ok(
          to.value >= 0.99 * busy && to.value <= 1.2 * Math.max(...stage.busy_ms),
          `${gain}: busy for ${busy} ms`,
        );
        agrees(/busy ([\d.]+ %)/.exec(title)[1], 1 - stage.idle_frac, 'busy share of the title');
      }
    }
    assert.ok(
      rest.some((line) => line.length > 40 && /[.]$/.test(line)),
      `no advice: ${text}`,
    );
    return `${title}${gain ? ` | ${gain}` : ''}`;
  },

  async function how_many_flops(page, truth) {
    const rows = await rows_of(await section(page, 'Stages'), 'Figures of every stage');
    const figure = (name) => rows.find((row) => row.figure === name);
    const sku = /sku\s+(\S+)/.exec(await (await section(page, 'Recording and device')).innerText())[1];
    const [head, ...sheet] = readFileSync(join(values.source, 'data/hardware/gpus.csv'), 'utf8').split('\n');
    const gpu = sheet.find((line) => line.startsWith(`${sku},`)).split(',');
    const peak = 1e12 * Number(gpu[head.split(',').indexOf('bf16_tflops')]);
    const answers = [];
    for (const [stage, { product_flops, wall_ms }] of Object.entries(truth.stages)) {
      if (product_flops === null) {
        const said = figure('FLOPs')?.[stage];
        assert.ok(said === undefined || said === '–', `FLOPs without a shape: ${said}`);
        const unknown = await (await section(page, 'Not known')).innerText();
        assert.match(unknown, /FLOP|shape/, 'why there are no FLOPs');
        answers.push(`${stage}: not known`);
        continue;
      }
      agrees(figure('GEMM FLOPs')[stage], product_flops, `${stage}: FLOPs of products`);
      const all = number_in(figure('FLOPs')[stage]);
      assert.ok(
        all.value + all.off >= product_flops && all.value < 1.05 * product_flops,
        `${stage}: ${all.value} FLOPs`,
      );
      const rate = number_in(figure('TFLOP/s')[stage]);
      assert.ok(Math.abs(rate.value / (all.value / (wall_ms / 1e3)) - 1) < 5e-3, `${stage}: ${rate.value} FLOP/s`);
      const mfu = number_in(figure('MFU')[stage]);
      assert.ok(
        Math.abs(mfu.value - rate.value / peak) <= mfu.off + 2e-3 * mfu.value,
        `${stage}: MFU of ${rate.value / peak}`,
      );
      answers.push(`${stage}: ${figure('TFLOP/s')[stage]}, ${figure('MFU')[stage]} of ${peak / 1e12}`);
    }
    return answers.join('; ');
  },

  async function how_much_memory(page, truth) {
    const text = await (await section(page, 'Memory')).innerText();
    if (!truth.holds.memory) {
      assert.match(text, /Not in this recording/);
      assert.match(text, /record with/);
      return 'not in the recording';
    }
    for (const [name, bytes] of [
      ['allocated', truth.peak_allocated_bytes],
      ['reserved', truth.peak_reserved_bytes],
    ])
      agrees(new RegExp(`peak ${name} bytes\\s+(\\S+ \\S+)`).exec(text)[1], bytes, name);
    return /peak allocated bytes\s+(\S+ \S+)/.exec(text)[1];
  },

  async function which_line_of_python(page, truth) {
    if (!waits_for_code(truth)) {
      const rows = await rows_of(await section(page, 'Idle causes'), 'Idle time by cause and stage');
      const [host, all] = [rows.filter((row) => row.cause === 'host-work'), rows].map((some) =>
        some.reduce((sum, row) => sum + number_in(row.total).value, 0),
      );
      assert.ok(host <= 0.05 * all, `${host} of ${all} ms`);
      return `none: ${rows[0].cause} ${rows[0].total}`;
    }
    if (!truth.holds.Python) {
      const text = await (await section(page, 'Not known')).innerText();
      assert.match(text, /Python[\s\S]*What to do: [\s\S]*(with_stack|llmprof run)/);
      return 'not in the recording';
    }
    const place = await section(page, 'Idle causes');
    // Largest first, as a reader asks for them: the rows of kind python alone.
    const filter = place.locator('[data-table="idle_sites"] select');
    const kinds = place.locator('[data-table="idle_sites"] input[type=search]');
    assert.ok((await filter.isVisible()) && (await kinds.isVisible()));
    await kinds.fill('python');
    const rows = await rows_of(place, 'Where the host was meanwhile');
    const answers = [];
    for (const [stage, { python }] of Object.entries(truth.stages)) {
      const own = rows.filter((row) => row.stage === stage && row.kind === 'python');
      for (const [i, [name, ms]] of python.entries()) {
        assert.equal(own[i].site, name, stage);
        agrees(own[i].total, ms, `${stage}: ${name}`);
      }
      const line = own.find((row) => /\.py\(\d+\)/.test(row.site));
      answers.push(`${stage}: ${own[0].site}, in ${line?.site}`);
    }
    return answers.join('; ');
  },

  async function what_can_it_not_tell(page, truth) {
    const text = await (await section(page, 'Not known')).innerText();
    const about = { memory: /how much memory/i, Python: /Python code/, counters: /hardware counters/, power: /power/ };
    for (const [name, pattern] of Object.entries(about)) {
      const missed = !truth.holds[name] && (name !== 'Python' || waits_for_code(truth));
      assert.equal(pattern.test(text), missed, `${name}: held ${truth.holds[name]}, and the page says ${text}`);
    }
    const questions = text.split('\n').filter((line) => line.endsWith('?'));
    assert.equal(text.split('\n').filter((line) => line.startsWith('What to do')).length, questions.length, text);
    return questions.join(' ');
  },
];

const doc = readFileSync(join(values.source, 'docs/howto/read-the-page.md'), 'utf8');
const asked = [...doc.matchAll(/^\| (\d+) \| (.*?) \|/gm)].map((match) => match[2]);

test('the documentation has the ten', () => assert.equal(asked.length, QUESTIONS.length));

for (const [name, recording] of Object.entries(RECORDINGS))
  test(`ten questions about "${name}"`, async (context) => {
    const file = join(folder, `${name}.html`);
    execFileSync(values.binary, ['analyze', recording, '-o', file, '-q', '--ceilings', 'datasheet'], { env });
    const tables = join(folder, `${name}.sqlite`);
    execFileSync(values.binary, ['export', recording, '--to', 'sqlite', '-o', tables, '-q'], { env });
    const script = join(values.source, 'tests/web/ten_questions.py');
    const truth = JSON.parse(execFileSync('python3', ['-B', script, tables]).toString());
    await open_page(browser, file, 'main section', async (page) => {
      for (const [i, question] of QUESTIONS.entries())
        await context.test(asked[i], async () => {
          const answer = await question(page, truth);
          if (values.print) console.error(`${name} ${i + 1}: ${answer}`);
        });
    });
  });
