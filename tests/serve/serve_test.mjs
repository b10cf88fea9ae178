// `llmprof serve` from outside: who is refused, and its pages in headless Chromium: no error, no request to another server,
// operable by keyboard, accessible in both themes, the numbers of the runs, harmless whatever names they have; and the store
// is afterwards as it was.
//   node serve_test.mjs --binary LLMPROF --source FOLDER [--screenshots FOLDER]
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { parseArgs } from 'node:util';
import { open_address, open_browser } from '../web/browser.mjs';
import { ask, start } from './server.mjs';
import { kFactors, kFormula, kHostile, kSlower, make_store } from './store.mjs';

const { values } = parseArgs({
  options: { binary: { type: 'string' }, source: { type: 'string' }, screenshots: { type: 'string' } },
});
const folder = mkdtempSync(join(tmpdir(), 'llmprof-serve-'));
let store;
let env;
let runs;
let recordings;
let untouched;
let server;
let browser;
let axe;

/** Every file of the store, with its content and the time of its last change. */
function state_of(place) {
  return readdirSync(place, { recursive: true })
    .sort()
    .map((name) => {
      const status = statSync(join(place, name));
      const content = status.isFile()
        ? createHash('sha256')
            .update(readFileSync(join(place, name)))
            .digest('hex')
        : '';
      return `${name} ${status.mtimeMs} ${content}`;
    });
}

before(async () => {
  ({ store, env, runs, recordings } = make_store({ ...values, folder }));
  untouched = state_of(store);
  server = await start(values.binary, env);
  ({ browser, axe } = await open_browser(join(values.source, 'web')));
});
after(async () => {
  await browser?.close();
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Opens a page of the server. */
function with_page(path, use, { ready = 'main section, [role=alert]', origin = server.origin, ...options } = {}) {
  const address = path.startsWith('http') ? path : origin + path;
  return open_address(browser, address, ready, use, { own: `${origin}/`, ...options });
}

const named = (name) => runs.filter((run) => run.name === name);
const result_of = async (number) => JSON.parse((await ask(server.port, `/api/runs/${number}/result`)).body);
const shot = async (page, name) => {
  if (values.screenshots) await page.screenshot({ path: join(values.screenshots, `${name}.png`), fullPage: true });
};

test('requests that name another server, come from one, or change something are refused', async () => {
  const code = async (path, options) => (await ask(server.port, path, options)).status;
  assert.equal(await code('/'), 200);
  assert.equal(await code('/', { method: 'HEAD' }), 200);
  const at = `localhost:${server.port}`;
  assert.equal(await code('/api/runs', { headers: { Host: at, Origin: `http://${at}` } }), 200);
  for (const headers of [
    { Host: 'evil.example' },
    { Host: `evil.example:${server.port}` },
    { Host: '127.0.0.1' },
    { Host: '127.0.0.1:1' },
    { Origin: 'http://evil.example' },
    { Origin: 'null' },
    { 'Sec-Fetch-Site': 'cross-site' },
    { 'Sec-Fetch-Site': 'same-site' },
  ])
    for (const path of ['/', '/api/runs', '/runs/1', '/nothing'])
      assert.equal(await code(path, { headers }), 403, `${path} ${JSON.stringify(headers)}`);
  for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])
    assert.equal(await code('/api/runs', { method, body: 'a=b' }), 405, method);
});

test('no path leads out of the routes', async () => {
  for (const path of [
    '/../../../../etc/passwd',
    '/..%2f..%2fetc/passwd',
    '/runs/../../settings.json',
    '/runs/%2e%2e/%2e%2e/etc/passwd',
    '/runs/1/../../index.sqlite',
    '/runs/1/manifest.json',
    `/runs/${encodeURIComponent('1/../../..')}`,
    '/index.sqlite',
    '/runs/1%00.html',
    `/${'a'.repeat(10_000)}`,
  ]) {
    const answer = await ask(server.port, path);
    assert.equal(answer.status, 404, path);
    assert.ok(answer.body.length < 200 && !answer.body.includes('root:'), path);
  }
});

test('every answer has its policy, and none can be kept or read by another site', async () => {
  for (const path of ['/', '/runs/1', '/api/runs', '/nothing']) {
    const { headers } = await ask(server.port, path);
    assert.match(headers['content-security-policy'], /^default-src 'none'.*frame-ancestors 'none'$/, path);
    assert.doesNotMatch(headers['content-security-policy'], /unsafe|\*|https?:/, path);
    assert.equal(headers['cache-control'], 'no-store', path);
    assert.equal(headers['x-content-type-options'], 'nosniff', path);
    assert.equal(headers['cross-origin-resource-policy'], 'same-origin', path);
    assert.equal(headers['access-control-allow-origin'], undefined, path);
  }
});

test('a page of another site gets nothing, even with the same host name', async () => {
  const other = createServer((_, answer) => {
    answer.setHeader('Content-Type', 'text/html');
    answer.end('<!doctype html><title>other</title>');
  });
  await new Promise((resolve) => other.listen(0, '127.0.0.1', resolve));
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`http://127.0.0.1:${other.address().port}/`);
  const got = await page.evaluate(async (origin) => {
    const out = [];
    for (const mode of ['cors', 'no-cors'])
      try {
        const answer = await fetch(`${origin}/api/runs`, { mode });
        out.push(`${answer.status} ${(await answer.text()).length}`);
      } catch {
        out.push('refused');
      }
    const image = new Image();
    out.push(
      await new Promise((resolve) => {
        image.onload = () => resolve('loaded');
        image.onerror = () => resolve('refused');
        image.src = `${origin}/runs/1`;
      }),
    );
    const frame = document.createElement('iframe');
    frame.src = `${origin}/`;
    document.body.append(frame);
    await new Promise((resolve) => (frame.onload = resolve));
    let inside = 'unreachable';
    try {
      inside = frame.contentDocument?.body?.textContent ?? inside;
    } catch {
      // as it should be
    }
    return [...out, inside];
  }, server.origin);
  assert.deepEqual(got, ['refused', 'refused', 'refused', 'unreachable']);
  await context.close();
  other.close();
});

test('the list has every run, with its numbers', async () => {
  await with_page('/', async (page) => {
    const rows = await page.$$eval('#runs tbody tr', (all) =>
      all.map((row) => [...row.cells].map((cell) => cell.textContent)),
    );
    assert.deepEqual(
      rows.map((row) => Number(row[0])),
      runs.map((run) => run.number),
    );
    const llama = runs.find((run) => run.name.startsWith('kineto_llama'));
    const row = rows.find((one) => Number(one[0]) === llama.number);
    assert.deepEqual(row.slice(1, 3), ['analysis', llama.name]);
    assert.deepEqual(row.slice(4, 8), ['26.93 ms', '25.91 ms', 'NVIDIA H200', 'whole']);
    await page.click('#runs th[data-column="tpot_ms"] button');
    const sorted = await page.$$eval('#runs tbody tr th', (all) => all.map((one) => Number(one.textContent)));
    const known = runs.filter((run) => run.tpot_ms !== null).sort((a, b) => b.tpot_ms - a.tpot_ms);
    assert.equal(sorted[0], known[0].number);
    await page.fill('#runs input[type=search]', 'rmsnorm');
    assert.equal(await page.$$eval('#runs tbody tr', (all) => all.length), 2);
    await shot(page, 'list');
  });
});

test('by keyboard alone from the list to a report and back', async () => {
  await with_page('/', async (page) => {
    const number = runs[0].number;
    let focused = '';
    for (let i = 0; i < 60 && focused !== `/runs/${number}`; ++i) {
      await page.keyboard.press('Tab');
      focused = await page.evaluate(() => document.activeElement?.getAttribute('href') ?? '');
    }
    assert.equal(focused, `/runs/${number}`, 'the newest run is reached by Tab');
    await Promise.all([page.waitForURL(`**/runs/${number}`), page.keyboard.press('Enter')]);
    await page.waitForSelector('main section');
    assert.match(await page.textContent('h1'), /series\.json/);
    assert.equal(await page.textContent('.brand'), `llmprof report of run ${number}`);
    assert.match(await page.title(), new RegExp(`^run ${number}: series`));
    assert.ok(await page.isVisible('#answer'));
    await page.keyboard.press('Tab'); // to "skip to the content"
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'all runs');
    await Promise.all([page.waitForURL(`${server.origin}/`), page.keyboard.press('Enter')]);
    await page.waitForSelector('#runs tbody tr');
  });
});

test('each run that has a result has its page, with the timeline of a recording', async () => {
  // Of the runs of a series one: they are alike.
  for (const run of runs.filter((one, i) => runs.findIndex((other) => other.name === one.name) === i)) {
    const section = run.kind === 'bench' ? '#cases' : '#answer';
    await with_page(`/runs/${run.number}`, async (page) => assert.ok(await page.isVisible(section), run.name));
  }
  await with_page(`/runs/${named(kFormula)[0].number}`, async (page) => {
    await page.evaluate(() => (location.hash = '#timeline'));
    await page.waitForSelector('#timeline canvas'); // it came from the report.html that run has left
    await shot(page, 'report');
  });
});

// A browser logs every answer that is not 200; why there is no verdict comes as one of 409.
const refused = { expected: /the server responded with a status of 409/ };

// ---- timelines

test('a recording elsewhere has its timeline, one that was not kept is made, and else the page says why', async () => {
  const elsewhere = named('elsewhere')[0];
  await with_page(`/runs/${elsewhere.number}`, async (page) => {
    await page.evaluate(() => (location.hash = '#timeline'));
    await page.waitForSelector('#timeline canvas');
  });
  const llama = runs.find((run) => run.name.startsWith('kineto_llama'));
  await with_page(`/runs/${llama.number}`, async (page) => {
    assert.match(await page.textContent('#timeline'), /None was kept of this run/);
    await shot(page, 'timeline_to_make');
    await Promise.all([page.waitForURL(`**/runs/${llama.number}/timeline#timeline`), page.click('#timeline a')]);
    await page.waitForSelector('#timeline canvas');
    assert.match(await page.title(), new RegExp(`^run ${llama.number}: `));
    await shot(page, 'timeline_made');
  });
  // The file that the first of the series has read has been written anew.
  const first = named('series').at(-1);
  await with_page(`/runs/${first.number}`, async (page) =>
    assert.match(
      await page.textContent('#timeline'),
      new RegExp(`There is no timeline: The recording of run ${first.number} has been changed since the run\\.`),
    ),
  );
});

// ---- comparisons

const data_of = async (path) => {
  const { status, body } = await ask(server.port, path);
  return { status, data: status === 200 ? JSON.parse(body) : body };
};

test('two runs get the verdict of diff, on its page', async () => {
  const before = runs.find((run) => run.name.startsWith('kineto_llama'));
  const after = named('slower')[0];
  const own = spawnSync(values.binary, ['diff', recordings.llama, recordings.slower, '--json'], {
    env,
    maxBuffer: 1e8,
  });
  const expected = JSON.parse(own.stdout);
  const { status, data } = await data_of(`/api/diff/${before.number}/${after.number}`);
  assert.equal(status, 200);
  assert.deepEqual(
    data.sides.map((side) => side.runs),
    [before, after].map((run) => [`${String(run.number).padStart(4, '0')}-analysis-${run.name}`]),
  );
  const without_names = (result) => ({ ...result, sides: result.sides.map((side) => ({ ...side, runs: [] })) });
  assert.deepEqual(without_names(data), without_names(expected));
  const tpot = data.stages.find((stage) => stage.metric === 'tpot');
  assert.ok(Math.abs(tpot.change_frac - (kSlower - 1)) < 1e-3, `${tpot.change_frac}`);
  // A recording that was stretched as a whole is one of a slower host.
  assert.equal(tpot.verdict, 'AMBIGUOUS');
  assert.match(tpot.reason, /host of the other side took/);
  // From the page of the runs, by choosing them.
  await with_page('/', async (page) => {
    const [first, second] = await page.$$('#compare select');
    await first.selectOption(String(before.number));
    await second.selectOption(String(after.number));
    await shot(page, 'choose');
    await Promise.all([
      page.waitForURL(`**/diff/${before.number}/${after.number}`, { timeout: 60_000 }),
      page.click('#compare >> text="compare"'),
    ]);
    await page.waitForSelector('main section');
    assert.match(await page.textContent('main'), /AMBIGUOUS/);
    assert.match(await page.textContent('h1'), /kineto_llama.* → .*slower/);
    assert.equal(await page.getAttribute('a.up', 'href'), '/');
    await shot(page, 'diff');
    await page.goBack();
    await page.waitForSelector('#runs tbody tr');
  });
});

test('several runs a side are repeats, results of bench are compared, and the list leads there', async () => {
  const [a, b] = [named(kHostile)[0], named(kFormula)[0]];
  const llama = runs.find((run) => run.name.startsWith('kineto_llama'));
  const { data } = await data_of(`/api/diff/${llama.number},${a.number}/${b.number},${named('slower')[0].number}`);
  assert.deepEqual(
    data.sides.map((side) => side.runs.length),
    [2, 2],
  );
  const [second, first] = runs.filter((run) => run.kind === 'bench');
  await with_page('/', async (page) => {
    await page.fill('#runs input[type=search]', 'bench');
    await Promise.all([
      page.waitForURL(`**/diff/${first.number}/${second.number}`),
      page.click(`#runs >> text="with ${first.number}"`),
    ]);
    await page.waitForSelector('main section');
    assert.match(await page.textContent('main'), /rmsnorm/);
    await shot(page, 'diff_bench');
  });
});

test('others are answered while a comparison is made, and what nobody waits for ends', async () => {
  const children = () =>
    readdirSync('/proc')
      .filter((name) => /^[0-9]+$/.test(name))
      .filter((name) => {
        try {
          return (
            readFileSync(`/proc/${name}/stat`, 'utf8')
              .replace(/^.*\) /, '')
              .split(' ')[1] === String(slow.pid)
          );
        } catch {
          return false; // it has just ended
        }
      });
  const until = async (holds) => {
    for (let i = 0; i < 500 && !holds(); ++i) await new Promise((resolve) => setTimeout(resolve, 20));
    return holds();
  };
  // A recording that comes through a pipe, which nobody writes to, is read for ever.
  const pipe = join(folder, 'pipe.json');
  const copy = join(folder, 'pipes');
  cpSync(store, copy, { recursive: true });
  assert.equal(spawnSync('mkfifo', [pipe]).status, 0);
  utimesSync(pipe, 1, 1);
  const number = named('slower')[0].number;
  const manifest = join(
    copy,
    readdirSync(copy).find((name) => Number(name.slice(0, 4)) === number),
    'manifest.json',
  );
  writeFileSync(manifest, JSON.stringify({ ...JSON.parse(readFileSync(manifest)), inputs: [pipe] }));
  const slow = await start(values.binary, { ...env, LLMPROF_STORE: copy });
  const other = runs.find((run) => run.name.startsWith('kineto_llama')).number;
  const given_up = new AbortController();
  const asked = fetch(`${slow.origin}/diff/${other}/${number}`, { signal: given_up.signal }).catch(() => 'given up');
  assert.ok(await until(() => children().length === 1), 'one process compares');
  assert.equal((await ask(slow.port, '/api/runs')).status, 200);
  given_up.abort();
  assert.equal(await asked, 'given up');
  assert.ok(await until(() => children().length === 0), 'its process ends with its asker');
  const still = fetch(`${slow.origin}/diff/${other}/${number}`).catch(() => 'ended');
  assert.ok(await until(() => children().length === 1));
  const began = Date.now();
  assert.equal(await slow.stop(), 0);
  assert.ok(Date.now() - began < 5000);
  await still;
  rmSync(copy, { recursive: true });
});

test('where there is no verdict, why and the figures of both', async () => {
  const series = named('series');
  const [a, b] = [series[series.length - 1], series[0]];
  // The file that the earlier ones have read has been written anew.
  const changed = await data_of(`/api/diff/${a.number}/${b.number}`);
  assert.equal(changed.status, 409);
  assert.match(changed.data, new RegExp(`^The recording of run ${a.number} has been changed since the run\\.`));
  await with_page(
    `/diff/${a.number}/${b.number}`,
    async (page) => {
      await page.waitForSelector('[data-table="compare-headline"]');
      assert.equal(new URL(page.url()).hash, `#compare/${a.number}/${b.number}`);
      assert.match(
        await page.textContent('#compare [role=status]'),
        /no verdict: The recording of run \d+ has been changed/,
      );
      const rows = await page.$$eval('[data-table="compare-headline"] tbody tr', (all) =>
        all.map((row) => [...row.cells].map((cell) => cell.textContent)),
      );
      const tpot = rows.find((row) => row[0] === 'TPOT');
      const before_ms = (await result_of(a.number)).latency.headline.tpot_ms;
      const after_ms = (await result_of(b.number)).latency.headline.tpot_ms;
      assert.deepEqual(tpot.slice(1, 3), [`${before_ms.toFixed(2)} ms`, `${after_ms.toFixed(2)} ms`]);
      assert.equal(tpot[4], `+${(100 * (after_ms / before_ms - 1)).toFixed(1)} %`);
      for (const table of ['stages', 'busy', 'operators', 'kernels'])
        assert.ok(await page.$(`[data-table="compare-${table}"] tbody tr`), table);
      // Every stage of the recording that was stretched by a quarter takes a quarter longer.
      const changes = await page.$$eval('[data-table="compare-stages"] tbody tr td:last-child', (all) =>
        all.map((cell) => cell.textContent),
      );
      for (const change of changes) assert.match(change, /^\+25\.\d %$/);
      await shot(page, 'compare');
      const chosen = () => page.$$eval('#compare select', (all) => all.map((select) => select.value));
      assert.deepEqual(await chosen(), [String(a.number), String(b.number)]);
      await page.click('text=swap');
      assert.deepEqual(await chosen(), [String(b.number), String(a.number)]);
    },
    refused,
  );
  const bench = runs.find((run) => run.kind === 'bench');
  await with_page(
    `/diff/${bench.number}/${b.number}`,
    async (page) => {
      await page.waitForFunction(() =>
        /compare with each other[^]*no figures in common/.test(document.querySelector('#compare')?.textContent ?? ''),
      );
    },
    refused,
  );
});

test('the trend of a series marks the run from which its level changed', async () => {
  const series = named('series').reverse();
  assert.equal(series.length, kFactors.length);
  const changed = series[6].number;
  const { trends } = JSON.parse((await ask(server.port, '/api/trends')).body);
  const found = trends.find((trend) => trend.name === 'series');
  assert.deepEqual(
    [found.tpot_changes, found.ttft_changes].map((changes) => changes.map((change) => change.number)),
    [[changed], [changed]],
  );
  await with_page('/#trends', async (page) => {
    assert.equal(await page.$$eval('#trends canvas', (all) => all.length), 2);
    const said = await page.$$eval('#trends .changes li', (all) => all.map((one) => one.textContent));
    assert.match(
      said[0],
      new RegExp(`^TPOT from run ${changed} on 32\\.\\d+ ms instead of 25\\.\\d+ ms \\(\\+2[45]\\.\\d %\\)`),
    );
    assert.match(said[1], new RegExp(`^TTFT from run ${changed} on `));
    assert.equal(await page.$$eval('#trends [data-table="points"] tbody tr', (all) => all.length), kFactors.length);
    await (await page.$('#trends')).scrollIntoViewIfNeeded();
    await shot(page, 'trends');
  });
});

test('names that mean harm are text, in the list, a report and a comparison', async () => {
  const harmless = async (page) => {
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.equal(await page.$$eval('main img, main script', (all) => all.length), 0);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
    assert.equal(await page.evaluate(() => /[\u001b\u2028\u202e]/.test(document.body.innerText)), false);
  };
  const harm = named('harm')[0];
  const hostile = runs.find((run) => run.name.startsWith('</script>'));
  assert.ok(harm && hostile && named(kFormula)[0]);
  await with_page('/', async (page) => {
    await page.fill('#runs input[type=search]', 'onerror');
    assert.match(await page.textContent('#runs tbody tr'), /<\/script><img src=x/);
    await harmless(page);
    await shot(page, 'hostile');
  });
  await with_page('/#trends', harmless);
  for (const run of [harm, hostile]) await with_page(`/runs/${run.number}`, harmless);
  const other = named('hostile_names')[0];
  for (const [one, two] of [
    [hostile, harm],
    [other, harm],
    [hostile, other],
  ])
    await with_page(
      `/diff/${one.number}/${two.number}`,
      async (page) => {
        await page.waitForFunction(() => /(→|There is no verdict)/.test(document.body.textContent));
        await harmless(page);
      },
      refused,
    );
  // What a spreadsheet would run is made harmless where rows are copied.
  await with_page('/', async (page) => {
    await page.evaluate(() =>
      Object.defineProperty(navigator, 'clipboard', {
        configurable: true,
        value: { writeText: async (text) => void (globalThis.copied = text) },
      }),
    );
    await page.click('#runs >> text=copy as CSV');
    await page.waitForFunction(() => globalThis.copied);
    const text = await page.evaluate(() => globalThis.copied);
    assert.ok(text.includes(`'${kFormula}`) && !text.includes(`,${kFormula}`));
  });
});

test('axe finds no violation, light and dark, and a phone scrolls tables alone', async () => {
  const number = named('series')[0].number;
  const pages = [
    [`/diff/${number - 1}/${number}`, '[data-table="compare-kernels"]', 'all'],
    [`/runs/${number}`, '#answer', 'report'],
  ];
  for (const colorScheme of ['light', 'dark'])
    for (const [path, ready, name] of colorScheme === 'light' ? pages : pages.slice(0, 1))
      await with_page(
        path,
        async (page) => {
          await page.waitForSelector(ready);
          await page.evaluate(axe);
          const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
          assert.deepEqual(
            found.violations.flatMap((one) =>
              one.nodes.slice(0, 3).map((node) => `${one.id}: ${node.html.slice(0, 200)}`),
            ),
            [],
            `${name}, ${colorScheme}`,
          );
          await shot(page, `${name}_${colorScheme}`);
        },
        { colorScheme, ...refused },
      );
  await with_page(
    '/',
    async (page) => {
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360);
      await shot(page, 'phone');
    },
    { viewport: { width: 360, height: 740 } },
  );
});

test('with a token, its address opens the page once and a cookie after that', async () => {
  const file = join(folder, 'token');
  const token = 'an-own-token-of-23-letters';
  writeFileSync(file, `${token}\n`);
  chmodSync(file, 0o644);
  const open_file = spawnSync(values.binary, ['serve', '--port', '0', '--token-file', file], { env });
  assert.equal(open_file.status, 1);
  assert.match(open_file.stderr.toString(), /only its owner can read/);
  chmodSync(file, 0o600);
  for (const args of [['--token'], ['--token-file', file], ['--host', '0.0.0.0']]) {
    const guarded = await start(values.binary, env, ...args);
    const url = new URL(guarded.url);
    const given = url.searchParams.get('token');
    assert.ok(args[1] === file ? given === token : /^[0-9a-f]{32}$/.test(given), guarded.url);
    for (const path of ['/', '/api/runs', '/runs/1', `/?token=${'0'.repeat(given.length)}`, '/?token='])
      assert.equal((await ask(guarded.port, path)).status, 401, path);
    assert.equal((await ask(guarded.port, '/', { headers: { Authorization: `Bearer ${given}` } })).status, 200);
    await with_page(
      guarded.url,
      async (page) => {
        assert.equal(page.url(), `${guarded.origin}/`, 'the token leaves the address');
        const [cookie] = await page.context().cookies();
        assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, 'Strict']);
        await page.waitForSelector('#runs tbody tr');
        await page.goto(`${guarded.origin}/runs/1`);
        await page.waitForSelector('main section');
      },
      { origin: guarded.origin },
    );
    if (args[0] === '--host') assert.match(guarded.said(), /not encrypted/);
    assert.equal(await guarded.stop(), 0);
  }
});

test('what keeps it from serving is said, and it ends by Ctrl-C', async () => {
  const fails = (args, more = {}) => {
    const done = spawnSync(values.binary, ['serve', ...args], { env: { ...env, ...more }, timeout: 20_000 });
    return `${done.status} ${done.stderr}`;
  };
  assert.match(fails(['--port', String(server.port)]), /^1 [^]*in use[^]*--port 0/);
  assert.match(fails(['--port', '0'], { LLMPROF_STORE: 'off' }), /^2 [^]*expected a run store/);
  assert.match(fails(['--port', '0', '--host', 'example.com']), /^2 [^]*expected localhost or an IP address/);
  assert.match(fails(['--port', '70000']), /^2 /);
  assert.match(fails(['--port', '0', '--open', '--token']), /^2 [^]*--open goes without a token/);
  const empty = join(folder, 'none');
  const none = await start(values.binary, { ...env, LLMPROF_STORE: empty });
  await with_page('/', async (page) => assert.match(await page.textContent('#runs'), /no runs yet/), {
    origin: none.origin,
  });
  assert.match(none.said(), /no runs yet/);
  assert.equal(await none.stop('SIGTERM'), 0);
  assert.throws(() => statSync(empty), 'looking makes no store');
});

test('the store is as it was', () => assert.deepEqual(state_of(store), untouched));
