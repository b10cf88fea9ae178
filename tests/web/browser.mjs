// Chromium for the tests of the page, and pages on which nothing may be logged, thrown or asked of a network.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** Chromium with a user data folder of its own, and the source of axe. `web`: the folder with npm's packages. */
export async function open_browser(web) {
  const file = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((one) => existsSync(one));
  assert.ok(file, 'expected Chromium at /usr/bin/chromium, found none: apt-get install chromium');
  assert.ok(
    existsSync(join(web, 'node_modules')),
    `expected npm's packages in ${web}/node_modules, found none: ./dev web`,
  );
  const require = createRequire(join(web, 'package.json'));
  const { chromium } = require('playwright-core');
  const browser = await chromium.launch({
    executablePath: file,
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  return { browser, axe: readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8') };
}

/** Opens a page and waits until `ready` is there; `use` may do with it what it likes. Nothing may be logged, thrown, or
 *  asked of anyone but `own`, except what `expected` matches. */
export async function open_address(browser, address, ready, use, { own, expected, ...options }) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    colorScheme: 'light',
    ...options,
  });
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => complaints.push(`thrown: ${error.message}`));
  page.on('request', (request) => {
    if (!request.url().startsWith(own)) complaints.push(`asked for ${request.url()}`);
  });
  await page.goto(address);
  await page.waitForSelector(ready);
  const result = await use(page);
  const unexpected = complaints.filter((complaint) => !expected?.test(complaint));
  assert.deepEqual(unexpected, []);
  await context.close();
  return result;
}

export function open_page(browser, file, ready, use, { hash = '', ...options } = {}) {
  return open_address(browser, `file://${file}${hash}`, ready, use, { own: 'file://', ...options });
}
