// Builds dist/report.html from src/: the whole page but its data. Script and style stand inside it, and its content
// security policy allows these two and nothing else, by their hashes. The same sources give the same bytes.
//   node build.mjs [OUTPUT]
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const output = process.argv[2] ?? join(here, 'dist', 'report.html');

const built = await esbuild.build({
  absWorkingDir: here,
  entryPoints: ['src/main.ts'],
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
  if (!file) throw new Error(`expected a bundle ${ending} of src/main.ts, found none`);
  return file.text.trim();
};
const script = bundled('.js');
const style = bundled('.css');
if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style)) throw new Error('the bundle would end its own element');

const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

const template = readFileSync(join(here, 'src', 'page.html'), 'utf8');
// The hashes are those of the elements' whole text: not even white space may stand beside it.
for (const place of ['content="{{policy}}"', '<style>{{style}}</style>', '<script>{{script}}</script>'])
  if (!template.includes(place)) throw new Error(`expected ${place} in src/page.html`);
const page = template
  .replace('{{policy}}', () => policy)
  .replace('{{style}}', () => style)
  .replace('{{script}}', () => script);
mkdirSync(dirname(output), { recursive: true });
writeFileSync(output, page);
