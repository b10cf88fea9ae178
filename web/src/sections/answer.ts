// The answer: what was run, TTFT, TPOT and rate, the verdict per stage, and what to change, in the order of the result. Every
// number leads to the rows that it came from.
import { el, shortened, type Child } from '../dom';
import { format_count, format_ms, format_number, format_percent, format_rate } from '../format';
import { link_to, why_missing, type Page } from '../page';
import { number_of, row_of, rows_of, text_of, texts_of, type Row } from '../result';
import { of_servers_alone } from './servers';

const kPathErrorMost = 0.05; // a replay further off says nothing of what a step consists of

export function processor(data: Row): string {
  const device = row_of(data['device']);
  return device && device['compute_capability'] === null && device['sku'] === null ? 'CPU' : 'GPU';
}

/** Stages of steps, not of warm-up and not the time outside. */
export const judged_stages = (data: Row): Row[] =>
  rows_of(data['stages']).filter((stage) => {
    const name = text_of(stage['name']);
    return name !== '[unattributed]' && !name.endsWith(' [warm-up]') && (number_of(stage['count']) ?? 0) > 0;
  });

export const stage_address = (name: string): string => `#stage/${encodeURIComponent(name)}`;

/** The median step: without the recorder where that is known, else as recorded, and which of the two. */
export function step_time(data: Row, stage: Row): { ms: number; source: string } {
  for (const row of rows_of(data['undisturbed'])) {
    const ms = number_of(row['step_ms']);
    if (
      row['stage'] === stage['name'] &&
      row['device'] === stage['device'] &&
      row['source'] !== 'recorded' &&
      ms !== null
    )
      return { ms, source: `median, ${text_of(row['source'])}, without the recorder` };
  }
  const ms = number_of(step_of(data, stage)?.['step_p50_ms']);
  if (ms !== null) return { ms, source: 'median, measured, as recorded' };
  const count = number_of(stage['count']) ?? 1;
  return { ms: (number_of(stage['wall_ms']) ?? 0) / Math.max(1, count), source: 'mean, measured, as recorded' };
}

/** The row of stage_steps that is about a stage. */
export const step_of = (data: Row, stage: Row): Row | undefined =>
  rows_of(data['stage_steps']).find((row) => row['stage'] === stage['name'] && row['device'] === stage['device']);

const linked = (href: string, text: string, tip: string): HTMLElement => el('a', { href, 'data-tip': tip }, text);

function facts(page: Page): HTMLElement {
  const { data } = page;
  const device = row_of(data['device']);
  const model = row_of(data['model']);
  const source = row_of(data['source']);
  const parts: Child[] = [];
  const add = (...part: Child[]): void => {
    if (parts.length) parts.push(' · ');
    parts.push(...part);
  };
  if (device) {
    const units = number_of(device['sm_count']);
    add(
      linked('#recording', shortened(text_of(device['name'])), 'device'),
      units === null ? '' : `, ${units} ${processor(data) === 'CPU' ? 'threads' : 'SMs'}`,
    );
    const type = text_of(device['arithmetic']);
    for (const [name, unit] of [
      [`${type}_tflops`, 'TFLOP/s'],
      ['dram_gbs', 'GB/s'],
    ] as const) {
      const peak = row_of(row_of(device['peaks'])?.[name]);
      const value = number_of(peak?.['value']);
      if (peak && value !== null)
        add(
          linked(
            '#recording',
            `${name === 'dram_gbs' ? '' : type + ' '}${format_rate(value)} ${unit}`,
            text_of(peak['provenance']),
          ),
        );
    }
  }
  if (model)
    add(
      linked(
        '#recording',
        shortened(text_of(model['id'])),
        `${text_of(model['origin'])}: ${text_of(model['evidence'])}`,
      ),
      ` (${text_of(model['origin'])})`,
    );
  const recorded = number_of(source?.['recorded_ms']);
  const profiled = rows_of(data['profiled_kernels']).reduce((sum, row) => sum + (number_of(row['calls']) ?? 0), 0);
  const logged = rows_of(data['logged_products']).reduce((sum, row) => sum + (number_of(row['calls']) ?? 0), 0);
  if (profiled > 0 && !recorded) add(linked('#profiled_kernels', `${profiled} kernels profiled`, 'counted'));
  if (logged > 0 && !recorded) add(linked('#logged_products', `${logged} matrix products logged`, 'counted'));
  const runs = rows_of(data['client_runs']).length;
  const pages = rows_of(data['metrics_pages']).length;
  if (runs > 0 && !recorded)
    add(linked('#client_runs', `${runs} run${runs === 1 ? '' : 's'} of a benchmark`, 'measured'));
  if (pages > 0 && !recorded)
    add(linked('#metrics_pages', `${pages} metrics page${pages === 1 ? '' : 's'}`, 'counted'));
  const ranks = rows_of(data['nccl_ranks']).length;
  if (ranks > 0 && !recorded) add(linked('#nccl_ranks', `${ranks} rank${ranks === 1 ? '' : 's'} of NCCL`, 'counted'));
  const operations = rows_of(data['nccl_operations']).reduce(
    (sum, row) => sum + (number_of(row['operations']) ?? 0),
    0,
  );
  if (operations > 0 && !recorded)
    add(linked('#nccl_operations', `${operations} operations of NCCL timed`, 'measured'));
  const layers = rows_of(data['engine_layers']).length;
  const figures = rows_of(data['engine_latency']).length;
  if (layers > 0 && !recorded) add(linked('#engine_layers', `${layers} layers of an engine`, 'measured'));
  if (figures > 0 && !recorded) add(linked('#engine_latency', 'queries of an engine', 'measured'));
  const launches = rows_of(data['proton_profiles']).reduce((sum, row) => sum + (number_of(row['launches']) ?? 0), 0);
  const scopes = rows_of(data['proton_scopes']).length;
  if (launches > 0 && !recorded)
    add(linked('#proton_kernels', `${format_count(launches)} launches of kernels`, 'measured'));
  if (scopes > 0 && !recorded) add(linked('#proton_scopes', `${scopes} scopes`, 'measured'));
  const allocators = rows_of(data['allocators']).length;
  if (allocators > 0 && !recorded)
    add(linked('#allocators', `PyTorch's memory on ${allocators} GPU${allocators === 1 ? '' : 's'}`, 'counted'));
  if (
    recorded !== null &&
    (recorded > 0 ||
      profiled + logged + runs + pages + ranks + operations + layers + figures + scopes + allocators === 0)
  )
    add(linked('#recording', `${format_ms(recorded)} recorded`, 'measured'));
  return el('p', { class: 'facts' }, ...parts);
}

/** What must be known before any number, as the text report says it first (report/text.cc). */
function cautions(data: Row): HTMLElement[] {
  const caution = (word: string, text: string): HTMLElement =>
    el('p', { class: `caution ${word}` }, el('b', {}, `${word}:`), ' ', shortened(text, 2000));
  const diagnostics = rows_of(data['diagnostics']);
  const of_key = (wanted: (key: string) => boolean): string[] =>
    diagnostics.filter((row) => wanted(text_of(row['key']))).map((row) => text_of(row['text']));
  const worst = diagnostics[0]; // the most severe is the first
  const lost = worst && ['data-loss', 'error'].includes(text_of(worst['severity'])) ? [text_of(worst['text'])] : [];
  return [
    ...of_key((key) => key.startsWith('option-')).map((text) => caution('warning', text)),
    ...lost.map((text) =>
      caution('warning', `the recording is not whole, and figures are of what could be read: ${text}`),
    ),
    ...of_key((key) => key === 'unfinished-spool').map((text) => caution('note', text)),
    ...texts_of(row_of(data['device'])?.['remarks']).map((text) => caution('note', `${text}.`)),
  ];
}

interface Figure {
  name: string;
  value: string | null;
  href: string;
  from: string;
  notes: string[];
}

function figure(one: Figure): HTMLElement {
  return el(
    'div',
    { class: 'figure' },
    el('dt', {}, one.name),
    el(
      'dd',
      {},
      one.value === null
        ? el('span', { class: 'none' }, 'not known')
        : el('a', { href: one.href, class: 'value', 'data-tip': one.from }, one.value),
      ...one.notes.map((note) => el('span', { class: 'note' }, note)),
      one.value === null ? null : el('span', { class: 'from' }, one.from),
    ),
  );
}

const source_words: Record<string, string> = {
  unrecorded: 'measured on steps without the recorder',
  replayed: 'recorded steps, replayed without what recording costs',
  recorded: 'measured, with the recorder’s cost',
};

const interval = (low: number | null, high: number | null): string[] =>
  low === null || high === null ? ['no interval: fewer than three'] : [`95 %: ${format_ms(low)} to ${format_ms(high)}`];

const other_model = (part: number | null): string[] =>
  part === null
    ? []
    : [`${format_percent(part)} of it another model’s pass before the prompt (an encoder’s, or of the answer before)`];

/** The name of the stage that a kind of latency comes from. */
const stage_of_kind = (data: Row, kinds: string[]): string => {
  const stages = judged_stages(data).filter((stage) => kinds.includes(text_of(stage['kind'])));
  return text_of(stages[0]?.['name']);
};

function figures(page: Page): HTMLElement {
  const latency = row_of(page.data['latency']);
  const headline = row_of(latency?.['headline']);
  if (!headline) return why_missing(page, /TTFT|TPOT|latenc|token/i);
  const ms = (field: string): number | null => number_of(headline[field]);
  const shown = (value: number | null): string | null => (value === null ? null : format_ms(value));
  const times = (n: number, one: string): string =>
    n === 1 ? `of one ${one}` : `median of ${n} ${one}${n === 1 ? '' : 's'}`;
  const prefill = stage_of_kind(page.data, ['prefill', 'mixed']);
  const decode = stage_of_kind(page.data, ['decode', 'mixed']);
  const steps = (stage: string): string => (stage ? link_to('steps', { stage }) : '#steps');
  const from = (field: string): string => source_words[text_of(headline[field])] ?? 'measured, as recorded';
  const rate = ms('output_tokens_per_s');
  const per_token = ms('tpot_ms') ?? ms('itl_ms');
  return el(
    'dl',
    { class: 'figures' },
    figure({
      name: 'TTFT',
      value: shown(ms('ttft_ms')),
      href: steps(prefill),
      from: from('ttft_source'),
      notes:
        ms('ttft_ms') === null
          ? []
          : [
              ...interval(ms('ttft_ci95_low_ms'), ms('ttft_ci95_high_ms')),
              times(number_of(headline['ttft_n']) ?? 0, 'request'),
              ...other_model(number_of(headline['ttft_other_model_frac'])),
            ],
    }),
    figure({
      name: ms('tpot_ms') === null ? 'ITL' : 'TPOT',
      value: shown(per_token),
      href: steps(decode),
      from: from('itl_source'),
      notes:
        per_token === null
          ? []
          : [
              ...interval(ms('itl_ci95_low_ms'), ms('itl_ci95_high_ms')),
              times(number_of(headline['itl_n']) ?? 0, 'step'),
              ...(ms('itl_p99_ms') === null ? [] : [`p99 ${format_ms(ms('itl_p99_ms') as number)}`]),
            ],
    }),
    figure({
      name: 'rate',
      value: rate === null ? null : `${format_rate(rate)} tokens/s`,
      href: '#latency',
      from: 'measured: output tokens over the time of the same steps',
      notes: ['output tokens while decoding'],
    }),
  );
}

const path_parts: [string, string][] = [
  ['host_code_ms', 'host code'],
  ['no_input_ms', 'no input'],
  ['cuda_calls_ms', 'CUDA calls'],
  ['launch_latency_ms', 'launch latency'],
  ['gpu_work_ms', 'GPU work'],
  ['gpu_gap_ms', 'GPU gaps'],
  ['wake_up_ms', 'waking up'],
  ['unexplained_ms', 'unexplained'],
];

function waits_for(data: Row, stage: Row): string | null {
  const path = rows_of(data['critical_path']).find(
    (row) => row['stage'] === stage['name'] && row['device'] === stage['device'],
  );
  const step = number_of(path?.['step_ms']);
  if (!path || !step || (number_of(path['error_worst_frac']) ?? 0) > kPathErrorMost) return null;
  const parts = path_parts
    .map(([field, name]): [number, string] => [(number_of(path[field]) ?? 0) / step, name])
    .filter(([share]) => share >= 0.015)
    .sort((a, b) => b[0] - a[0]);
  return parts.map(([share, name]) => `${name} ${(100 * share).toFixed(0)} %`).join(', ');
}

function verdict(page: Page): HTMLElement {
  const { data } = page;
  const window_ms = number_of(row_of(data['source'])?.['duration_ms']) ?? 0;
  const several = new Set(judged_stages(data).map((stage) => stage['device'])).size > 1;
  const share = (value: number | null, least: number | null): string | null =>
    value !== null ? format_percent(value) : least !== null ? `≥ ${format_percent(least)}` : null;
  const cell = (text: string | null, href: string, tip: string, number = true): HTMLElement =>
    el(
      'td',
      { class: number ? 'number' : null },
      text === null
        ? el('span', { class: 'none', role: 'img', 'aria-label': 'not known' }, '–')
        : linked(href, text, tip),
    );
  const longest_first = judged_stages(data).sort(
    (a, b) => (number_of(b['wall_ms']) ?? 0) - (number_of(a['wall_ms']) ?? 0),
  );
  const not_all: string[] = []; // stages of which some steps are recorded and some are not
  const apart: string[] = []; // stages whose times are without the recorder
  const rows = longest_first.map((stage) => {
    const name = text_of(stage['name']);
    const to = stage_address(name);
    const step = step_time(data, stage);
    if (step.source.endsWith('without the recorder')) apart.push(shortened(name));
    const busy = number_of(stage['gpu_busy_frac']);
    const counted = number_of(stage['gr_active_frac']);
    const of = step_of(data, stage);
    const recorded = number_of(of?.['recorded_steps']) ?? 0;
    const all = number_of(of?.['all_steps']) ?? 0;
    const of_steps = `${format_count(recorded)} of ${format_count(all)}`;
    if (busy !== null && recorded > 0 && recorded < all) not_all.push(`${shortened(name)} ${of_steps}`);
    const idle = busy !== null ? format_percent(1 - busy) : counted !== null ? `~${format_percent(1 - counted)}` : null;
    const detail = text_of(stage['bound_detail']);
    const bound = text_of(stage['bound']);
    return el(
      'tr',
      {},
      el(
        'th',
        { scope: 'row' },
        linked(to, shortened(name), 'all figures of this stage'),
        several ? ` GPU ${String(stage['device'])}` : '',
      ),
      cell(format_count(number_of(stage['count']) ?? 0), link_to('steps', { stage: name }), 'measured: steps'),
      cell(window_ms > 0 ? format_percent((number_of(stage['wall_ms']) ?? 0) / window_ms) : null, to, 'measured'),
      cell(format_ms(step.ms), link_to('steps', { stage: name }), step.source),
      cell(
        idle,
        link_to('idle', { stage: name }),
        recorded > 0 ? `measured: recorded steps, ${of_steps}` : 'measured by hardware counter: no step is recorded',
      ),
      cell(
        share(number_of(stage['mfu']), number_of(stage['mfu_at_least'])),
        to,
        `FLOPs ${text_of(stage['flops_provenance']) || 'not known'}, measured time, ${peak_words(data)} peak`,
      ),
      cell(
        share(number_of(stage['mbu']), number_of(stage['mbu_at_least'])),
        to,
        `bytes by formula, measured time, ${peak_words(data)} bandwidth`,
      ),
      cell(
        bound ? bound + (detail ? `, ${shortened(detail, 90)}` : '') : null,
        to,
        'what most of the time of its steps goes to; copies that kernels hide are no part of it',
        false,
      ),
      cell(
        waits_for(data, stage),
        `#path/${encodeURIComponent(name)}`,
        'shares of a step along its critical path: measured, along replayed dependencies',
        false,
      ),
    );
  });
  const names = [
    'stage',
    'n',
    'of window',
    'median step',
    `${processor(data)} idle`,
    'MFU',
    'MBU',
    'bound',
    'on the critical path of a step',
  ];
  const head = el(
    'tr',
    {},
    ...names.map((name, i) => el('th', { scope: 'col', class: i >= 1 && i <= 6 ? 'number' : null }, name)),
  );
  if (rows.length === 0) return why_missing(page, /stage|step|prefill|decode/i);
  const table = el(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'verdict per stage' },
    el(
      'table',
      { class: 'verdict' },
      el('caption', {}, 'Verdict per stage'),
      el('thead', {}, head),
      el('tbody', {}, ...rows),
    ),
  );
  const notes = [
    apart.length ? `Without what recording costs: median step and ${processor(data)} idle of ${apart.join(', ')}.` : '',
    not_all.length ? `${processor(data)} idle is of recorded steps: ${not_all.join(', ')}.` : '',
  ].filter((note) => note !== '');
  return el('div', {}, table, notes.length ? el('p', { class: 'note' }, notes.join(' ')) : null);
}

const peak_words = (data: Row): string => (row_of(data['device'])?.['sku'] ? 'data sheet’s' : 'measured');

/** "Simulated: TPOT 3.300 ms → 1.700 ms (95 %: 1.600 ms to 1.800 ms)"; at best where a formula bounds it. */
export function gain_words(finding: Row): string | null {
  const gain = row_of(finding['gain']) ?? row_of(finding['bound']);
  const from = number_of(gain?.['from']);
  const to = number_of(gain?.['to']);
  if (!gain || from === null || to === null) return null;
  const metric = text_of(gain['metric']).replace(/ \(ms\)$/, '');
  const ci = Array.isArray(gain['ci95']) ? gain['ci95'] : [];
  const range =
    typeof ci[0] === 'number' && typeof ci[1] === 'number' ? ` (95 %: ${format_ms(ci[0])} to ${format_ms(ci[1])})` : '';
  const how = gain['method'] === 'replay' ? 'Simulated' : 'At best, by formula';
  const at = text_of(gain['at']);
  const at_to = number_of(gain['at_to']);
  const place =
    at && at_to !== null && format_ms(at_to) !== format_ms(to) ? `, at ${at} alone ${format_ms(at_to)}` : '';
  const on_top = text_of(gain['on_top_of']);
  return `${how}: ${metric} ${format_ms(from)} → ${format_ms(to)}${range}${place}${on_top ? `, on top of ${on_top}` : ''}`;
}

// Where the numbers of a finding come from, by its id; all others: its stage.
const rows_behind: [RegExp, (stage: string) => string][] = [
  [/launch-bound|host|sync|idle|gap|input|item/, (stage) => link_to('idle', { stage })],
  [/copy|copies|pageable/, (stage) => link_to('categories', { stage })],
  [/small-kernels|attention|gemm|kernel|norm|padding|memory-bound/, (stage) => link_to('categories', { stage })],
  [/profiler|distortion|record/, () => '#recording'],
  [/clock|throttle|power|thermal/, () => '#telemetry'],
  [/alloc/, () => '#memory'],
];

function address_of(finding: Row, known: Set<string>): string {
  const stage = text_of(finding['stage']);
  const of_stage = known.has(stage);
  const id = text_of(finding['id']);
  for (const [pattern, address] of rows_behind)
    if (pattern.test(id)) return of_stage ? address(stage) : address(stage).replace(/\?.*/, '');
  return of_stage ? stage_address(stage) : '#stages';
}

function evidence_table(finding: Row, href: string): HTMLElement {
  const rows = rows_of(finding['evidence']).map((one) => {
    const value = number_of(one['value']);
    const unit = text_of(one['unit']);
    return el(
      'tr',
      {},
      el('th', { scope: 'row' }, shortened(text_of(one['metric']), 300)),
      el(
        'td',
        { class: 'number' },
        value === null
          ? 'not known'
          : el(
              'a',
              { href, 'data-tip': text_of(one['provenance']) },
              format_number(value, unit === 'flop' ? 'FLOP' : unit),
            ),
      ),
      el('td', {}, text_of(one['provenance'])),
    );
  });
  const head = el(
    'tr',
    {},
    el('th', { scope: 'col' }, 'evidence'),
    el('th', { scope: 'col', class: 'number' }, 'value'),
    el('th', { scope: 'col' }, 'provenance'),
  );
  return el(
    'table',
    { class: 'evidence' },
    el('caption', {}, `Numbers behind ${text_of(finding['id'])}`),
    el('thead', {}, head),
    el('tbody', {}, ...rows),
  );
}

function change(finding: Row, known: Set<string>, first: boolean): HTMLElement {
  const advice = texts_of(finding['advice']);
  const gain = gain_words(finding);
  const href = address_of(finding, known);
  const places = rows_of(finding['where']).map(
    (place) => `${place['kind'] === 'before-python' ? 'before' : 'at'} ${shortened(text_of(place['name']), 400)}`,
  );
  const symptoms = texts_of(finding['symptoms']);
  const forbidden = text_of(finding['forbidden_by']);
  return el(
    'li',
    { class: `finding ${text_of(finding['severity'])}` },
    el(
      'h3',
      {},
      el('span', { class: 'severity' }, text_of(finding['severity'])),
      ' ',
      el('a', { href }, shortened(text_of(finding['title']), 400)),
    ),
    gain ? el('p', { class: 'gain' }, gain) : null,
    advice[0] ? el('p', { class: 'advice' }, shortened(advice[0], 1000)) : null,
    forbidden ? el('p', {}, `Not as the program is: ${shortened(forbidden, 400)}`) : null,
    ...places.map((place) => el('p', { class: 'place' }, place)),
    el(
      'details',
      first ? { open: true } : {},
      el('summary', {}, `evidence of ${text_of(finding['id'])}`),
      el(
        'div',
        {
          class: 'scroll',
          tabindex: 0,
          role: 'region',
          'aria-label': `evidence of ${text_of(finding['id'])}, ${text_of(finding['stage'])}`,
        },
        evidence_table(finding, href),
      ),
      ...advice.slice(1).map((text) => el('p', { class: 'advice' }, shortened(text, 1000))),
      symptoms.length ? el('p', {}, `Goes with it: ${symptoms.map((one) => shortened(one, 300)).join('; ')}`) : null,
    ),
  );
}

// Tables of recordings without steps of a GPU: why nothing is judged, and what there is instead.
const WITHOUT_STEPS = [
  {
    table: 'profiled_kernels',
    why: 'Kernels were profiled one by one, so no steps are there to judge: ',
    what: 'how far each is from its limits',
    from: 'measured by Nsight Compute',
  },
  {
    table: 'logged_products',
    why: 'A log of calls has no steps to judge: ',
    what: 'its matrix products',
    from: 'counted by cuBLAS and cuBLASLt',
  },
  {
    table: 'client_runs',
    why: 'What clients saw has no steps of a GPU to judge: ',
    what: 'their runs',
    from: 'measured by the benchmark',
  },
  {
    table: 'allocators',
    why: 'A snapshot of memory has no steps to judge: ',
    what: 'what is held and used',
    from: 'counted by PyTorch',
  },
  {
    table: 'engine_layers',
    why: 'What trtexec exports has no steps to judge: ',
    what: 'the layers of the engine',
    from: "measured by TensorRT's profiler",
  },
  {
    table: 'engine_latency',
    why: 'What trtexec exports has no steps to judge: ',
    what: 'its queries',
    from: 'measured by trtexec',
  },
  {
    table: 'proton_scopes',
    why: 'Proton adds launches up and has no steps to judge: ',
    what: 'its scopes and kernels',
    from: "measured by Triton's Proton",
  },
  {
    table: 'nccl_operations',
    why: "What NCCL's Inspector writes has no steps to judge: ",
    what: 'the operations',
    from: "measured by NCCL's Inspector",
  },
  {
    table: 'server_figures',
    why: 'Metrics pages have no steps of a GPU to judge: ',
    what: 'their rates and states',
    from: 'counted by the server',
  },
];

function none_found(data: Row): HTMLElement {
  const instead = WITHOUT_STEPS.find(({ table }) => rows_of(data[table]).length > 0);
  if (judged_stages(data).length || !instead)
    return el('p', {}, 'Nothing that was looked for is worth a change (llmprof list findings).');
  return el('p', {}, instead.why, linked(`#${instead.table}`, instead.what, instead.from), '.');
}

export function add_answer(page: Page): void {
  page.claim('findings', 'schema');
  const findings = rows_of(page.data['findings']);
  const known = new Set(rows_of(page.data['stages']).map((stage) => text_of(stage['name'])));
  page.section(
    'answer',
    'Answer',
    facts(page),
    ...cautions(page.data),
    ...(of_servers_alone(page.data) ? [] : [figures(page), verdict(page)]),
    el('h3', {}, 'What to change, the most important first'),
    findings.length
      ? el('ol', { class: 'findings' }, ...findings.map((finding, i) => change(finding, known, i === 0)))
      : none_found(page.data),
  );
  const what_ifs = rows_of(page.data['what_ifs']);
  page.claim('what_ifs');
  if (what_ifs.length)
    page.section(
      'what_ifs',
      'What if',
      page.table({
        id: 'what_ifs',
        caption: 'Steps replayed with one thing changed',
        rows: what_ifs,
        group_by: ['what_if', 'stage'],
        columns: [
          'what_if',
          'stage',
          'step_ms',
          'then_ms',
          'gain_ms',
          'ci95_low_ms',
          'ci95_high_ms',
          'gain_frac',
          'forbidden',
        ],
      }),
    );
}
