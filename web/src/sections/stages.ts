// Every figure of every stage, with its provenance: one column for each stage.
import { el, shortened, type Child } from '../dom';
import { name_of } from '../fields';
import { type Page } from '../page';
import { kNotKnown } from '../table';
import { rows_of, text_of, type Row } from '../result';
import { stage_address, step_of } from './answer';

const kGroups: [string, RegExp][] = [
  ['steps', /^(kind|source|device|count|recorded_steps|tokens|output_tokens|sequences|context|kernels|launches)$/],
  ['time', /_ms$|^gpu_busy_frac$/],
  ['work', /flop|bytes|dtype|coverage_frac|^intensity$/],
  ['against the ceilings', /^(tflops|mfu|mbu|mfu_.*|mbu_.*|gemm_mfu|roof_tflops|of_roof_frac|bound.*)$/],
  ['counters and readings', /./],
];

function group_of(field: string): string {
  const first = /^(tflops|gemm_mfu|roof_tflops)$/.test(field)
    ? kGroups[3]
    : kGroups.find(([, pattern]) => pattern.test(field));
  return first?.[0] ?? '';
}

export function add_stages(page: Page): void {
  page.claim('stages', 'warm_up');
  // How many steps GPU busy, idle and the like are of stands beside how many there are.
  const stages = rows_of(page.data['stages']).map((stage) => {
    const { count, ...rest } = stage;
    return { count, recorded_steps: step_of(page.data, stage)?.['recorded_steps'] ?? null, ...rest } as Row;
  });
  if (stages.length === 0) return;
  const fields = page.fields('stages');
  const about = (field: string): string =>
    (field === 'recorded_steps' ? page.fields('stage_steps') : fields).about(field);
  const names = Object.keys(stages[0] as Row).filter((field) => field !== 'name');
  // Names that come twice, on several devices, get their device.
  const label = (stage: Row): string => {
    const name = text_of(stage['name']);
    return stages.filter((one) => one['name'] === stage['name']).length > 1
      ? `${name}, device ${String(stage['device'])}`
      : name;
  };
  const head = el('tr', {}, el('th', { scope: 'col' }, 'figure'), el('th', { scope: 'col' }, 'provenance'));
  for (const stage of stages) {
    const address = decodeURIComponent(stage_address(text_of(stage['name'])).slice(1));
    head.append(
      el('th', { scope: 'col', class: 'number', 'data-stage': address, tabindex: -1 }, shortened(label(stage), 60)),
    );
  }
  const bodies = kGroups.map(([group]) => {
    const rows = names
      .filter(
        (field) =>
          group_of(field) === group && stages.some((stage) => stage[field] !== null && stage[field] !== undefined),
      )
      .map((field) => {
        const cells: Child[] = stages.map((stage) => {
          const text = fields.show(field, stage[field], stage);
          if (text === null)
            return el(
              'td',
              { class: 'number none' },
              el('span', { role: 'img', 'aria-label': 'not known', 'data-tip': kNotKnown }, '–'),
            );
          return el('td', { class: 'number' }, shortened(text, 300));
        });
        const first = stages.find((stage) => stage[field] !== null) as Row;
        const from = typeof first[field] === 'number' ? fields.provenance(field, first) : '';
        return el(
          'tr',
          {},
          el('th', { scope: 'row', 'data-tip': about(field) }, name_of(field)),
          el('td', { class: 'from' }, from),
          ...cells,
        );
      });
    return rows.length
      ? el(
          'tbody',
          {},
          el('tr', {}, el('th', { colspan: stages.length + 2, scope: 'rowgroup', class: 'group' }, group)),
          ...rows,
        )
      : null;
  });
  const unknown = names.filter((field) => stages.every((stage) => stage[field] === null));
  const warm_up = rows_of(page.data['warm_up']);
  page.section(
    'stages',
    'Stages',
    el(
      'div',
      { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'figures of every stage' },
      el('table', { class: 'stages' }, el('caption', {}, 'Figures of every stage'), el('thead', {}, head), ...bodies),
    ),
    unknown.length
      ? el(
          'p',
          { class: 'missing' },
          `Not known of any stage: ${unknown.map(name_of).join(', ')}. `,
          el('a', { href: '#unknown' }, 'Why'),
        )
      : null,
    el(
      'p',
      {},
      'What each consists of: ',
      el('a', { href: '#path' }, 'from measured to ideal'),
      ', ',
      el('a', { href: '#categories' }, 'categories'),
      ', ',
      el('a', { href: '#idle' }, 'idle causes'),
      '.',
    ),
    warm_up.length
      ? page.table({ id: 'warm_up', caption: 'Warm-up: steps that are in no other figure', rows: warm_up, bare: true })
      : null,
  );
  page.route('stage', (name) => {
    const column = [...document.querySelectorAll<HTMLElement>('#stages [data-stage]')].find(
      (one) => one.dataset['stage'] === `stage/${name}`,
    );
    if (!column) return document.getElementById('stages');
    const index = [...(column.parentElement?.children ?? [])].indexOf(column);
    for (const one of document.querySelectorAll('#stages .chosen')) one.classList.remove('chosen');
    for (const row of document.querySelectorAll('#stages tr')) row.children[index]?.classList.add('chosen');
    column.focus();
    return column;
  });
}
