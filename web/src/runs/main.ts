// The page of all runs that `llmprof serve` serves at "/": list, comparison, trends.
import '../style.css';
import './runs.css';
import { el } from '../dom';
import { Page } from '../page';
import { theme_switch } from '../theme';
import { install_tips } from '../tip';
import { get } from './api';
import { Comparison } from './compare';
import { add_list } from './list';
import { add_trends } from './trends';

async function start(): Promise<void> {
  const [runs, trends] = await Promise.all([get('/api/runs'), get('/api/trends')]);
  const page = new Page({ kind: 'runs', data: runs, units: {} });
  page.claim('schema');
  add_list(page);
  new Comparison(page);
  add_trends(page, trends);
  page.show('Runs', theme_switch());
  install_tips();
}

start().catch((error: unknown) => {
  const why = error instanceof Error ? error.message : String(error);
  document.body.prepend(el('p', { role: 'alert', class: 'failed' }, `This page cannot show the runs: ${why}`));
});
