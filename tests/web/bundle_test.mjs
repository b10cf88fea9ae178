// The committed pages are what their sources make, and they are free of type errors.
//   node bundle_test.mjs --web FOLDER
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const { values } = parseArgs({ options: { web: { type: 'string' } } });
const web = values.web;
assert.ok(
  existsSync(join(web, 'node_modules', 'esbuild')),
  `expected npm's packages in ${web}/node_modules, found none: ./dev web`,
);

execFileSync(process.execPath, [join(web, 'node_modules', 'typescript', 'bin', 'tsc'), '--noEmit', '-p', web], {
  stdio: 'inherit',
});

const folder = mkdtempSync(join(tmpdir(), 'llmprof-web-'));
try {
  execFileSync(process.execPath, [join(web, 'build.mjs'), folder], { stdio: 'inherit' });
  for (const page of ['report.html', 'runs.html']) {
    const committed = readFileSync(join(web, 'dist', page));
    assert.ok(
      readFileSync(join(folder, page)).equals(committed),
      `web/dist/${page} is not what web/src makes: run ./dev web and commit it`,
    );
    const text = committed.toString();
    for (const address of text.match(/(?:src|href|url)\s*[=(]\s*["']?https?:/gi) ?? [])
      assert.fail(`the page refers to another server: ${address}`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
console.log('the committed pages are up to date');
