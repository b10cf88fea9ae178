// Builds dist/report.html and dist/runs.html from src/: whole pages but their data. Script and style stand inside them, and
// the content security policy of each allows these two and nothing else, by their hashes. The same sources give the same bytes.
//   node build.mjs [FOLDER]
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, 'dist');
const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

const template_file = 'src/page.html';

/** `elsewhere`: where the same is without JavaScript; `data`: what stands in for a result; `more`: what the page may do
 *  beyond showing itself. */
async function build_page(entry, name, { elsewhere, data = '', more = [] }) {
  const built = await esbuild.build({
    absWorkingDir: here,
    entryPoints: [entry],
    outdir: 'dist',
    bundle: true,
    write: false,
    minify: true,
    format: 'iife',
    target: 'es2022',
    charset: 'ascii',
    legalComments: 'none',
    loader: { '.css': 'css' },
  });
  const bundled = (ending) => {
    const file = built.outputFiles.find((one) => one.path.endsWith(ending));
    if (!file) throw new Error(`expected a bundle ${ending} of ${entry}, found none`);
    return file.text.trim();
  };
  const script = bundled('.js');
  const style = bundled('.css');
  if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style))
    throw new Error('the bundle would end its own element');
  const policy = [
    "default-src 'none'",
    `script-src ${hash(script)}`,
    `style-src ${hash(style)}`,
    'img-src data:',
    ...more,
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  const template = readFileSync(join(here, template_file), 'utf8');
  // The hashes are those of the elements' whole text: not even white space may stand beside it.
  for (const place of [
    'content="{{policy}}"',
    '<style>{{style}}</style>',
    '<script>{{script}}</script>',
    '{{elsewhere}}',
    '{{data}}',
  ])
    if (!template.includes(place)) throw new Error(`expected ${place} in ${template_file}`);
  const page = template
    .replace('{{policy}}', () => policy)
    .replace('{{style}}', () => style)
    .replace('{{script}}', () => script)
    .replace('{{elsewhere}}', () => elsewhere)
    .replace('{{data}}', () => data);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), page);
}

await build_page('src/main.ts', 'report.html', {
  elsewhere: 'The same numbers: llmprof ... --format text',
  data: '<!--llmprof:data-->\n',
});
// It asks the server that it came from, and nobody else.
await build_page('src/runs/main.ts', 'runs.html', {
  elsewhere: 'The same runs: llmprof runs list',
  more: ["connect-src 'self'"],
});
