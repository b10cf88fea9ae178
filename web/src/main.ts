// The page: reads what it is about, makes its sections, and goes where its address says.
import './style.css';
import { el } from './dom';
import { read_result } from './result';

async function start(): Promise<void> {
  const result = await read_result();
  document.title = `llmprof ${result.kind}`;
  document.body.append(el('main', {}, el('h1', {}, document.title)));
}

start().catch((error: unknown) => {
  const why = error instanceof Error ? error.message : String(error);
  document.body.append(el('p', { role: 'alert' }, `This page cannot show its result: ${why}`));
});
