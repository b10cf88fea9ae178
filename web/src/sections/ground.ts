// What the answers rest on: the recording, what it cost, what is not known, and what was odd about the input.
import { el, shortened } from '../dom';
import { why_missing, type Page } from '../page';
import { row_of, rows_of, text_of } from '../result';

export function add_unknown(page: Page): void {
  page.claim('cannot_tell');
  const rows = rows_of(page.data['cannot_tell']);
  page.section(
    'unknown',
    'Not known',
    rows.length
      ? el(
          'dl',
          { class: 'unknown' },
          ...rows.flatMap((row) => [
            el('dt', {}, shortened(text_of(row['question']), 1000)),
            el(
              'dd',
              {},
              shortened(text_of(row['why']), 1000),
              el('br'),
              'What to do: ',
              shortened(text_of(row['how_to_find_out']), 1000),
            ),
          ]),
        )
      : el('p', {}, 'Nothing that this page could answer is left open.'),
  );
}

export function add_diagnostics(page: Page): void {
  page.claim('diagnostics', 'conservation', 'coverage');
  const diagnostics = rows_of(page.data['diagnostics']);
  const checks = rows_of(page.data['conservation']);
  const coverage = rows_of(page.data['coverage']);
  const failed = checks.filter((check) => check['ok'] !== true).length;
  page.section(
    'diagnostics',
    'Diagnostics',
    el(
      'p',
      {},
      checks.length === 0
        ? ''
        : failed
          ? `${failed} of ${checks.length} totals do not add up.`
          : `${checks.length} of ${checks.length} totals add up to the nanosecond.`,
    ),
    diagnostics.length
      ? page.table({
          id: 'diagnostics',
          caption: 'Anomalies met while reading',
          rows: diagnostics,
          group_by: ['severity'],
        })
      : el('p', {}, 'No anomalies were met while reading.'),
    coverage.length
      ? el(
          'div',
          { class: 'block', id: 'coverage' },
          el('h3', { tabindex: -1 }, 'Coverage'),
          page.table({
            id: 'coverage',
            caption: 'How much of the recording the answers rest on',
            rows: coverage,
            bare: true,
          }),
        )
      : null,
    checks.length
      ? el(
          'div',
          { class: 'block', id: 'conservation' },
          el('h3', { tabindex: -1 }, 'Conservation'),
          page.table({ id: 'conservation', caption: 'Totals that must add up exactly', rows: checks }),
        )
      : null,
  );
}

export function add_recording(page: Page): void {
  page.claim('source', 'device', 'model', 'overhead', 'recorded', 'tool_version');
  const parts = (key: string): HTMLElement[] => {
    const record = row_of(page.data[key]);
    return record ? page.record(key, record) : [];
  };
  const recorded = rows_of(page.data['recorded']);
  const overhead = parts('overhead');
  page.section(
    'recording',
    'Recording and device',
    ...parts('source'),
    ...parts('device'),
    ...parts('model'),
    el('h3', {}, 'What recording cost'),
    ...(overhead.length ? overhead : [why_missing(page, /recorded/i)]),
    recorded.length
      ? page.table({ id: 'recorded', caption: 'How much was recorded, over time', rows: recorded })
      : null,
    el('p', { class: 'note' }, `llmprof ${text_of(page.data['tool_version'])}`),
  );
}
