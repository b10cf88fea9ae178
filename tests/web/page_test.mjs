// The page in headless Chromium: every section of every kind of page, no error, no request beyond the file, accessible in both
// themes, operable by keyboard, the numbers of the JSON, and harmless whatever names a recording holds.
//   node page_test.mjs --binary LLMPROF --source FOLDER
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { open_browser, open_page } from './browser.mjs';
import { make_pages, page_of, recording_of, result_in } from './pages.mjs';

const { values } = parseArgs({ options: { binary: { type: 'string' }, source: { type: 'string' } } });
const web = join(values.source, 'web');
const folder = mkdtempSync(join(tmpdir(), 'llmprof-pages-'));
let browser;
let axe;
let pages;

before(async () => {
  pages = make_pages({ binary: values.binary, source: values.source, web, folder });
  ({ browser, axe } = await open_browser(web));
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

const with_page = (file, use, options) => open_page(browser, file, 'main section, [role=alert]', use, options);
const page_named = (name) => pages.find((page) => page.name === name).file;
const json_of = (name) => result_in(readFileSync(page_named(name), 'utf8'));

test('every section of every page is there, reachable by its address, and not empty', async () => {
  for (const { name, file, sections } of pages)
    await with_page(file, async (page) => {
      const found = await page.$$eval('main > section', (all) => all.map((one) => one.id));
      for (const id of sections) assert.ok(found.includes(id), `${name}: expected a section ${id}, found ${found}`);
      const linked = await page.$$eval('nav a', (all) => all.map((one) => one.getAttribute('href').slice(1)));
      assert.deepEqual(linked, found, name);
      // Each address in turn: where the focus goes, and how much stands below the heading.
      const visited = await page.evaluate(async (ids) => {
        const out = [];
        for (const id of ids) {
          const arrived = new Promise((resolve) => addEventListener('hashchange', resolve, { once: true }));
          location.hash = id;
          await arrived;
          const section = document.getElementById(id);
          const length = section.textContent.length - section.querySelector('h2').textContent.length;
          out.push([id, document.activeElement?.closest('section')?.id, length > 5]);
        }
        return out;
      }, found);
      assert.deepEqual(
        visited,
        found.map((id) => [id, id, true]),
        name,
      );
      assert.equal(
        await page.$$eval('table', (all) => all.filter((one) => !one.caption?.textContent).length),
        0,
        `${name}: a table without a caption`,
      );
    });
});

async function check_accessibility(name, colorScheme, rules) {
  await with_page(
    page_named(name),
    async (page) => {
      await page.evaluate(axe);
      const found = await page.evaluate(
        (only) => globalThis.axe.run(document, { resultTypes: ['violations'], ...(only ? { runOnly: only } : {}) }),
        rules,
      );
      const said = found.violations.flatMap((one) =>
        one.nodes.slice(0, 3).map((node) => `${one.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`),
      );
      assert.deepEqual(said, [], `${name}, ${colorScheme}`);
    },
    { colorScheme },
  );
}

test('axe finds no violation in the light theme', async () => {
  const alike = ['graph', 'two_gpus', 'cpu']; // made of the same parts as "eager"
  for (const { name } of pages) if (!alike.includes(name)) await check_accessibility(name, 'light');
});

test('axe finds no violation in the dark theme', async () => {
  // Only colours differ; these pages have all of them.
  for (const name of ['eager', 'readings', 'peaks', 'diff'])
    await check_accessibility(name, 'dark', ['color-contrast', 'link-in-text-block']);
});

test('a phone of 360 px scrolls tables, never the page; tables print without controls', async () => {
  for (const name of ['eager', 'two_gpus', 'bench', 'model', 'hostile', 'diff', 'diff_hostile'])
    await with_page(
      page_named(name),
      async (page) => {
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(width <= 360, `${name}: the page is ${width} px wide`);
        await page.emulateMedia({ media: 'print' });
        assert.equal(await page.isVisible('nav'), false);
        assert.equal(await page.isVisible('.controls input'), false);
        assert.equal(await page.isVisible('main table'), true);
      },
      { viewport: { width: 360, height: 740 } },
    );
});

test('the page of a comparison says of each stage what the JSON says, and its parts add up', async () => {
  for (const name of ['diff', 'diff_three'])
    await with_page(page_named(name), async (page) => {
      const stages = json_of(name).stages;
      assert.ok(stages.some((stage) => stage.verdict === 'FASTER' || stage.verdict === 'SLOWER'));
      const shown = await page.$$eval('#answer .verdicts tbody tr', (rows) =>
        rows.map((row) => ({
          name: row.cells[0].textContent,
          verdict: row.cells[1].textContent,
          interval: row.cells[6].textContent,
          drawn: row.querySelector('.diff-interval') !== null,
        })),
      );
      assert.equal(shown.length, stages.length);
      stages.forEach((stage, i) => {
        const metric = stage.metric === 'step-at-pace' ? 'step at one pace of the host' : stage.metric;
        assert.ok(shown[i].name.toLowerCase().includes(`${stage.kind} ${metric}`), shown[i].name);
        assert.equal(shown[i].verdict, stage.verdict);
        assert.equal(shown[i].drawn, stage.ci95 !== null);
        assert.equal(shown[i].interval === '–', stage.ci95 === null);
      });
      const falls = await page.$$eval('#attribution tbody', (all) => all.map((one) => one.rows.length));
      const attributed = stages.filter((stage) => stage.attribution.length > 0);
      assert.deepEqual(
        falls,
        attributed.map((stage) => stage.attribution.length + (stage.unattributed_ms === null ? 0 : 1)),
      );
      for (const stage of attributed) {
        const sum = stage.attribution.reduce((all, share) => all + share.delta_ms, stage.unattributed_ms ?? 0);
        if (stage.unattributed_ms !== null) assert.ok(Math.abs(sum - (stage.b - stage.a)) < 1e-6);
      }
    });
  const gates = json_of('diff').gates;
  assert.equal(gates[0].state, 'broken');
  await with_page(page_named('diff'), async (page) => {
    assert.match(await page.textContent('[data-table="gates"]'), /tpot>3%.*broken/);
  });
});

test('the theme can be chosen against the system', async () => {
  await with_page(page_named('eager'), async (page) => {
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await background();
    await page.selectOption('.theme select', 'dark');
    assert.notEqual(await background(), light);
  });
});

/** What the button "copy as CSV" of a table gives. */
async function copied(page, table) {
  await page.evaluate(() => {
    globalThis.copied = null;
    Object.defineProperty(navigator, 'clipboard', {
      configurable: true,
      value: { writeText: async (text) => void (globalThis.copied = text) },
    });
  });
  await page.click(`[data-table="${table}"] >> text=copy as CSV`);
  await page.waitForFunction(() => globalThis.copied !== null);
  const text = await page.evaluate(() => globalThis.copied);
  const rows = [...text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\n]*))(,|\n)/g)].reduce(
    (all, [, quoted, plain, end]) => {
      all[all.length - 1].push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
      if (end === '\n') all.push([]);
      return all;
    },
    [[]],
  );
  const [head, ...body] = rows.slice(0, -1);
  return body.map((row) => Object.fromEntries(row.map((cell, i) => [head[i], cell])));
}

test('sorting, filtering, regular expressions and groups agree with the JSON', async () => {
  const kernels = json_of('eager').kernels_topk;
  await with_page(page_named('eager'), async (page) => {
    const table = '[data-table="kernels"]';
    const all = await copied(page, 'kernels');
    assert.equal(all.length, kernels.length);
    for (const [i, kernel] of kernels.entries()) {
      assert.equal(all[i].name, kernel.name);
      assert.equal(all[i].flops, kernel.flops === null ? '' : String(kernel.flops));
      assert.equal(Number(all[i].total_ms), kernel.total_ms);
    }
    await page.click(`${table} th[data-column="calls"] button`);
    assert.equal(await page.getAttribute(`${table} th[data-column="calls"]`, 'aria-sort'), 'descending');
    const by_calls = (await copied(page, 'kernels')).map((row) => Number(row.calls));
    assert.deepEqual(
      by_calls,
      kernels.map((kernel) => kernel.calls).sort((a, b) => b - a),
    );
    await page.click(`${table} th[data-column="tflops"] button`);
    await page.click(`${table} th[data-column="tflops"] button`);
    const rates = (await copied(page, 'kernels')).map((row) => row.tflops);
    const known = rates.filter((rate) => rate !== '').map(Number);
    assert.deepEqual(
      known,
      [...known].sort((a, b) => a - b),
    );
    assert.ok(
      rates.slice(known.length).every((rate) => rate === ''),
      'rows without a value stand last',
    );
    await page.fill(`${table} input[type=search]`, 'splitK');
    assert.equal(
      (await copied(page, 'kernels')).length,
      kernels.filter((kernel) => /splitk/i.test(kernel.name)).length,
    );
    await page.check(`${table} input[type=checkbox]`);
    await page.fill(`${table} input[type=search]`, '^(norm|rope)$');
    assert.equal(
      (await copied(page, 'kernels')).length,
      kernels.filter((kernel) => ['norm', 'rope'].includes(kernel.category)).length,
    );
    await page.fill(`${table} input[type=search]`, '(');
    assert.equal(await page.getAttribute(`${table} input[type=search]`, 'aria-invalid'), 'true');
    await page.fill(`${table} input[type=search]`, '');
    await page.selectOption(`${table} select`, 'category');
    for (const group of await copied(page, 'kernels')) {
      const members = kernels.filter((kernel) => kernel.category === group.category);
      assert.equal(Number(group.rows), members.length);
      assert.ok(Math.abs(Number(group.total_ms) - members.reduce((sum, kernel) => sum + kernel.total_ms, 0)) < 1e-9);
      if (members.some((kernel) => kernel.flops === null))
        assert.equal(group.flops, '', 'a sum with an unknown part is not known');
    }
  });
});

test('steps keep every digit of their time', async () => {
  const html = readFileSync(page_named('eager'), 'utf8');
  const found = /id="llmprof-result"/.test(html);
  assert.ok(found);
  const text = execFileSync(values.binary, [
    'analyze',
    join(values.source, 'tests/golden/inputs/kineto_llama-3.1-8b_unlabelled.json.gz'),
    '--json',
    '-q',
  ]).toString();
  const exact = [...text.matchAll(/"start_unix_ns": (\d+),\s*"duration_ns"/g)].map((match) => match[1]);
  assert.ok(exact.length > 1);
  await with_page(page_named('eager'), async (page) => {
    assert.deepEqual(
      (await copied(page, 'steps')).map((row) => row.start_unix_ns),
      exact,
    );
  });
});

test('the answer is that of the JSON, each number a link to rows, with its provenance', async () => {
  const data = json_of('eager');
  await with_page(page_named('eager'), async (page) => {
    const figures = await page.$$eval('#answer .figure', (all) => all.map((one) => one.textContent));
    assert.match(figures[0], new RegExp(`TTFT${data.latency.headline.ttft_ms.toFixed(2)} ms`));
    assert.match(figures[1], new RegExp(`TPOT${data.latency.headline.tpot_ms.toFixed(2)} ms`));
    const numbers = await page.$$eval('#answer .figure .value, #answer .verdict td a, #answer .evidence td a', (all) =>
      all.map((one) => [one.getAttribute('href'), one.dataset.tip]),
    );
    assert.ok(numbers.length > 20);
    for (const [href, tip] of numbers) assert.ok(/^#\w+/.test(href) && tip, `${href} ${tip}`);
    assert.equal(await page.$$eval('#answer .finding', (all) => all.length), data.findings.length);
    for (const href of new Set(numbers.map(([address]) => address))) {
      await page.evaluate((hash) => (location.hash = hash), href);
      const section = await page.evaluate(() => document.activeElement?.closest('section')?.id);
      assert.ok(section && section !== 'answer', `${href} leads nowhere`);
      assert.equal(
        await page.$$eval(
          'p.chosen:not([hidden])',
          (all) => all.filter((one) => one.textContent.startsWith('no row')).length,
        ),
        0,
        `${href} finds no row`,
      );
    }
  });
});

test('a step of each stage: medians and means of the recorded steps, as the JSON has them', async () => {
  const data = json_of('eager');
  const ms = (text) => {
    const [, value, unit] = /^([\d.,]+) (ns|us|ms|s)$/.exec(text);
    return Number(value.replace(/,/g, '')) * { ns: 1e-6, us: 1e-3, ms: 1, s: 1e3 }[unit];
  };
  await with_page(page_named('eager'), async (page) => {
    const table = await page.$eval('#steps table', (one) => ({
      caption: one.caption.textContent,
      head: [...one.tHead.rows[0].cells].map((cell) => cell.textContent.trim()),
      rows: [...one.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim())),
    }));
    assert.match(table.caption, /medians and means over its recorded steps/);
    const cell = (row, column) => row[table.head.findIndex((name) => name.startsWith(column))];
    assert.equal(table.rows.length, data.stage_steps.length);
    for (const row of table.rows) {
      const name = cell(row, 'stage');
      const lengths = data.steps
        .filter((step) => step.stage === name && step.recording === 'recorded' && !step.warm_up)
        .map((step) => step.duration_ns / 1e6)
        .sort((a, b) => a - b);
      const middle = (lengths[Math.floor((lengths.length - 1) / 2)] + lengths[Math.ceil((lengths.length - 1) / 2)]) / 2;
      assert.ok(Math.abs(ms(cell(row, 'step, median')) / middle - 1) < 1e-3, `${name}: ${row}, not ${middle} ms`);
      const json = data.stage_steps.find((one) => one.stage === name);
      for (const [column, field] of [
        ['step, mean', 'step_mean_ms'],
        ['GPU busy, median', 'gpu_busy_p50_ms'],
        ['GPU idle, median', 'gpu_idle_p50_ms'],
        ['kernels, time (mean)', 'kernels_mean_ms'],
        ['copies, time (mean)', 'copies_mean_ms'],
      ])
        assert.ok(Math.abs(ms(cell(row, column)) - json[field]) <= 1e-3 * json[field], `${name}, ${column}: ${row}`);
      assert.equal(Number(cell(row, 'recorded steps')), json.recorded_steps);
    }
    // The verdict names its figure.
    const head = await page.$$eval('#answer table.verdict thead th', (all) => all.map((one) => one.textContent));
    assert.ok(head.includes('median step'));
  });
});

test('idle time says of how many recorded steps it is, where there are others', async () => {
  const data = json_of('eager');
  const decode = data.stage_steps.find((row) => row.stage === 'decode');
  decode.all_steps = 1240;
  data.undisturbed = [{ stage: 'decode', device: decode.device, source: 'unrecorded', step_ms: 3 }];
  const file = join(folder, 'recorded_steps.html');
  writeFileSync(file, page_of(web, 'report', JSON.stringify(data)));
  await with_page(file, async (page) => {
    const cells = await page.$$eval('#answer table.verdict tbody tr', (rows) =>
      rows.map((row) => [row.cells[0].textContent, row.cells[4].textContent, row.cells[4].firstChild.dataset.tip]),
    );
    const [, idle, tip] = cells.find(([name]) => name === 'decode');
    assert.match(idle, /^[\d.]+ %$/);
    assert.equal(tip, `measured: recorded steps, ${decode.recorded_steps} of 1,240`);
    assert.equal(
      await page.textContent('#answer p.note'),
      'Without what recording costs: median step and GPU idle of decode. ' +
        `GPU idle is of recorded steps: decode ${decode.recorded_steps} of 1,240.`,
    );
    const row = await page.$$eval('#stages table.stages tr', (rows) =>
      rows.map((one) => [...one.cells].map((cell) => cell.textContent)).find((one) => one[0] === 'recorded steps'),
    );
    assert.deepEqual(
      row.slice(2).map((text) => (text === '–' ? null : Number(text))),
      data.stages.map((stage) => data.stage_steps.find((one) => one.stage === stage.name)?.recorded_steps ?? null),
    );
  });
});

test('the page begins with the warnings and notes of the text report', async () => {
  const inputs = join(values.source, 'tests', 'golden', 'inputs');
  const cut = join(folder, 'cut.json');
  writeFileSync(
    cut,
    gunzipSync(readFileSync(join(inputs, 'kineto_qwen2.5-0.5b_annotated.json.gz'))).subarray(0, 9_000_000),
  );
  const llama = join(inputs, 'kineto_llama-3.1-8b_unlabelled.json.gz');
  const cases = [
    [cut, '--gpu', 'L4', '--ceilings', 'datasheet'],
    [llama, '--gpu', 'h200', '--model', 'qwen2.5-0.5b', '--batch', '1'],
    [llama, '--ceilings', 'datasheet'],
  ];
  const found = [];
  for (const options of cases) {
    const run = (...more) =>
      spawnSync(values.binary, ['analyze', ...options, '--no-store', '-q', ...more], {
        encoding: 'utf8',
        maxBuffer: 1 << 28,
      });
    const file = join(folder, 'cautions.html');
    assert.ok([0, 3].includes(run('--format', 'html', '-o', file).status));
    // Wrapped and indented: two spaces before the first line, more before the others.
    const wanted = [];
    for (const line of run().stdout.split('\n')) {
      if (/^ {2}(warning|note): /.test(line)) wanted.push(line.trim());
      else if (/^ {6}\S/.test(line) && wanted.length) wanted[wanted.length - 1] += ` ${line.trim()}`;
      else if (wanted.length) break;
    }
    await with_page(file, async (page) => {
      const shown = await page.$$eval('#answer p.caution', (all) => all.map((one) => one.textContent));
      assert.deepEqual(
        shown.map((text) => text.replace(/\s+/g, ' ')),
        wanted.map((text) => text.replace(/\s+/g, ' ')),
      );
      found.push(shown.length);
    });
  }
  assert.ok(found[0] >= 2 && found[1] >= 1 && found[2] === 0, `${found}`);
});

test('the answer says which part of TTFT another model’s pass is, and nothing where there is none', async () => {
  for (const part of [0.37, null]) {
    const data = json_of('eager');
    assert.ok(data.latency.headline.ttft_ms > 0);
    data.latency.headline.ttft_other_model_frac = part;
    const file = join(folder, 'other_model.html');
    writeFileSync(file, page_of(web, 'report', JSON.stringify(data)));
    await with_page(file, async (page) => {
      const notes = await page.$$eval('#answer dl.figures span.note', (all) => all.map((one) => one.textContent));
      assert.deepEqual(
        notes.filter((text) => text.includes('another model')),
        part ? ['37.0 % of it another model’s pass before the prompt (an encoder’s, or of the answer before)'] : [],
      );
    });
  }
});

test('the waterfall adds up from the measured step to the ideal one', async () => {
  for (const name of ['eager', 'memory'])
    await with_page(page_named(name), async (page) => {
      const tables = await page.$$eval('#path table.bars', (all) =>
        all.map((table) =>
          [...table.tBodies[0].rows].map((row) => ({
            sum: row.className === 'sum',
            x: Number(row.querySelector('rect').getAttribute('x')),
            width: Number(row.querySelector('rect').getAttribute('width')),
          })),
        ),
      );
      assert.ok(tables.length >= 2);
      for (const rows of tables.filter((rows) => rows.filter((row) => row.sum).length === 3)) {
        let left = rows[0].width;
        for (const row of rows.slice(1)) {
          if (row.sum) assert.ok(Math.abs(row.width - left) < 2.5, `${name}: a sum of ${row.width}, ${left} are left`);
          else left = row.x;
        }
      }
    });
});

test('a page of profiled kernels judges no steps', async () => {
  await with_page(page_named('profiled'), async (page) => {
    const answer = await page.textContent('#answer');
    assert.ok(answer.includes('456 kernels profiled'), answer.slice(0, 300));
    assert.ok(answer.includes('no steps are there to judge'), answer.slice(0, 600));
    assert.ok(!answer.includes('0 ms recorded'));
    await page.click('#answer p a[href="#profiled_kernels"]');
    await page.waitForFunction(() => document.activeElement?.closest('section')?.id === 'profiled_kernels');
  });
});

test('by keyboard from the answer to a kernel', async () => {
  await with_page(page_named('eager'), async (page) => {
    const press_until = async (key, selector, most) => {
      for (let i = 0; i < most; ++i) {
        await page.keyboard.press(key);
        if (await page.evaluate((wanted) => document.activeElement?.matches(wanted) ?? false, selector)) return;
      }
      assert.fail(`${selector} is not reached by ${most} times ${key}`);
    };
    await press_until('Tab', '.skip', 1);
    await press_until('Tab', 'nav a[href="#roofline"]', 12);
    await page.keyboard.press('Enter');
    // The focus follows once the address has changed, which on a busy machine is after the next key.
    await page.waitForFunction(() => document.activeElement?.closest('section')?.id === 'roofline');
    await press_until('Tab', '.point', 5);
    assert.ok(await page.isVisible('#tip'), 'what is focused is explained');
    const first = await page.evaluate(() => document.activeElement.getAttribute('aria-label'));
    await page.keyboard.press('ArrowRight');
    assert.notEqual(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), first);
    await page.keyboard.press('Escape');
    assert.equal(await page.isVisible('#tip'), false);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.activeElement?.closest('section')?.id === 'kernels');
    const wanted = new URLSearchParams(await page.evaluate(() => location.hash.split('?')[1]));
    const shown = await page.$$eval('#kernels .described dl', (all) => all.map((one) => one.textContent));
    const rows = json_of('eager').kernels_topk.filter((kernel) =>
      [...wanted].every(([column, value]) => kernel[column] === value),
    );
    assert.ok(rows.length >= 1);
    assert.equal(shown.length, rows.length <= 4 ? rows.length : 0);
    assert.ok(shown.every((text) => text.includes(wanted.get('name'))));
  });
});

test('deep links open what they name', async () => {
  await with_page(
    page_named('eager'),
    async (page) => {
      assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'decode');
      assert.ok((await page.$$eval('#stages td.chosen', (all) => all.length)) > 10);
    },
    { hash: '#stage/decode' },
  );
  await with_page(
    page_named('eager'),
    async (page) => {
      const rows = json_of('eager').idle.filter((row) => row.stage === 'decode');
      assert.equal((await copied(page, 'idle')).length, rows.length);
    },
    { hash: '#idle?stage=decode' },
  );
  await with_page(
    page_named('eager'),
    async (page) => {
      for (const hash of ['#nothing', '#kernels?name=%ff', '#stage/%E0%A4%A', '#__proto__', '#path/<img src=x>']) {
        await page.evaluate((address) => (location.hash = address), hash);
        assert.ok(await page.isVisible('#answer'));
      }
    },
    { hash: '#%' },
  );
});

test('what is not known says so', async () => {
  await with_page(page_named('graph'), async (page) => {
    const dashes = await page.$$eval(
      'td.none span, th.none span',
      (all) => all.filter((one) => one.textContent === '–' && one.getAttribute('aria-label') !== 'not known').length,
    );
    assert.equal(dashes, 0);
    const reasons = json_of('graph').cannot_tell;
    assert.ok(reasons.length > 0);
    const text = await page.textContent('#unknown');
    for (const row of reasons) assert.ok(text.includes(row.question) && text.includes(row.why));
    assert.match(await page.textContent('#memory'), /Not in this recording\. .*memory/);
  });
});

const kHostile =
  '</script><img src=x onerror="globalThis.hacked=1"><!--<script>globalThis.hacked=2</script>\u2028\u202e&lt;';

test('names that mean harm are text', async () => {
  const recording = join(folder, 'harm.json');
  const file = join(folder, 'harm.html');
  writeFileSync(
    recording,
    recording_of([kHostile, 'bad INVALID bytes', '__proto__', 'constructor', `long ${'x'.repeat(100_000)}`]),
  );
  execFileSync(values.binary, ['analyze', recording, '-o', file, '-q']);
  const names = result_in(readFileSync(file, 'utf8')).kernels_topk.map((kernel) => kernel.name);
  assert.ok(names.includes(kHostile) && names.includes('__proto__'));
  await with_page(file, async (page) => {
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.equal(await page.$$eval('main img, main script', (all) => all.length), 0);
    assert.equal(await page.$$eval('#kernels tbody tr', (all) => all.length), names.length);
    const shown = await page.$$eval('#kernels tbody th', (all) => all.map((one) => one.textContent));
    assert.ok(
      shown.some((text) => text.includes('</script><img src=x')),
      'the name is there to be read',
    );
    assert.ok(shown.every((text) => text.length <= 400 && !/[\u2028\u202e]/.test(text)));
    for (const name of names) {
      await page.evaluate(
        (hash) => (location.hash = hash),
        `kernels?${new URLSearchParams({ name: name.slice(0, 1000) })}`,
      );
      assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    }
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  });
  // A comparison of two such, with a name of 10 MB, of which recordings keep the beginning.
  const [faster, again, compared] = ['harm_faster.json', 'harm_again.json', 'harm_diff.html'].map((name) =>
    join(folder, name),
  );
  const harmful = [kHostile, 'bad INVALID bytes', "=cmd|' /C calc'!A0", '\u001b]0;title\u0007', 'x'.repeat(10_000_000)];
  writeFileSync(faster, recording_of(harmful, { steps: 3 }));
  writeFileSync(again, recording_of(harmful, { steps: 3, us: 30 }));
  execFileSync(values.binary, ['diff', faster, again, '-o', compared, '-q']);
  await with_page(compared, async (page) => {
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.equal(await page.$$eval('main img, main script', (all) => all.length), 0);
    const text = await page.evaluate(() => document.body.innerText);
    assert.match(text, /<\/script><img src=x/);
    assert.ok(!/[\u001b\u0007\u2028\u202e]/.test(text) && text.length < 200_000);
    const rows = await copied(page, 'kernels');
    assert.ok(rows.length > 0 && rows.every((row) => !/^[=+@]/.test(row.name ?? row.kernel ?? '')));
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  });
  // The same where the JSON stands in the page as text, with a name of 10 MB.
  const plain = join(folder, 'plain.html');
  const long = `void long<${'x'.repeat(10_000_000)}>`;
  writeFileSync(
    plain,
    page_of(
      web,
      'report',
      JSON.stringify({
        kernels_topk: [
          { name: kHostile, stage: kHostile, total_ms: 1 },
          { name: long, stage: long, total_ms: 1 },
        ],
        cannot_tell: [],
        findings: [{ id: kHostile, title: kHostile, stage: kHostile, advice: [kHostile], evidence: [] }],
      }),
    ),
  );
  await with_page(plain, async (page) => {
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.equal(await page.$$eval('img', (all) => all.length), 0);
    assert.ok(
      (await page.$$eval('#kernels tbody th', (all) => all.map((one) => one.textContent.length))).every(
        (length) => length <= 400,
      ),
    );
    await page.fill('[data-table="kernels"] input[type=search]', 'long<x');
    assert.equal(await page.$$eval('#kernels tbody tr', (all) => all.length), 1);
    assert.equal((await copied(page, 'kernels'))[0].name, long);
  });
});

test('the policy lets no other script run', async () => {
  const file = join(folder, 'injected.html');
  writeFileSync(
    file,
    readFileSync(page_named('doctor'), 'utf8').replace('</body>', '<script>globalThis.hacked = 1</script></body>'),
  );
  const context = await browser.newContext();
  const page = await context.newPage();
  const said = [];
  page.on('console', (message) => said.push(message.text()));
  await page.goto(`file://${file}`);
  await page.waitForSelector('main section');
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  assert.ok(
    said.some((text) => /Content Security Policy/.test(text)),
    String(said),
  );
  await context.close();
});

test('a page that was cut says that it is not whole', async () => {
  const file = join(folder, 'cut.html');
  writeFileSync(file, readFileSync(page_named('doctor'), 'utf8').replace(/id="llmprof-result"/, 'id="other"'));
  await with_page(file, async (page) => assert.match(await page.textContent('[role=alert]'), /found none/));
});
