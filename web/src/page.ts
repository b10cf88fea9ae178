// The frame: navigation, sections, and where an address leads. #kernels?name=gemm goes to the section "kernels" and asks its
// table for these rows; #stage/decode to one stage.
import { el, shortened, type Child } from './dom';
import { Fields, name_of } from './fields';
import { columns_of, data_table, description, type DataTable, type TableSpec } from './table';
import { is_table, row_of, rows_of, text_of, type Result, type Row } from './result';

type Route = (rest: string, query: URLSearchParams) => HTMLElement | null;

export class Page {
  readonly data: Row;
  private readonly nav_list = el('ul');
  private readonly main = el('main', { id: 'content', tabindex: -1 });
  private readonly routes = new Map<string, Route>();
  private readonly claimed = new Set<string>();
  private readonly links = new Map<string, HTMLAnchorElement>();

  constructor(readonly result: Result) {
    this.data = result.data;
  }

  /** Everything is in place: puts the frame into the document and goes where the address says. */
  show(title: string, ...beside: Child[]): void {
    // Served by `llmprof serve`, it has a page above it, and its address says which run it is of: many are called alike.
    const served = document.querySelector('link[rel=up]') !== null;
    const run = served ? /^\/runs\/(\d+)(?:\/timeline)?$/.exec(location.pathname)?.[1] : undefined;
    document.title = `${run ? `run ${run}: ` : ''}${title} – llmprof ${this.result.kind}`;
    const header = el(
      'header',
      {},
      served ? el('a', { class: 'up', href: '/' }, 'all runs') : null,
      el('p', { class: 'brand' }, `llmprof ${this.result.kind}${run ? ` of run ${run}` : ''}`),
      el('h1', {}, title),
      ...beside,
    );
    document.body.append(
      el(
        'a',
        { class: 'skip', href: '#content', click: (event: Event) => (event.preventDefault(), this.main.focus()) },
        'skip to the content',
      ),
      header,
      el('div', { class: 'frame' }, el('nav', { 'aria-label': 'sections' }, this.nav_list), this.main),
    );
    window.addEventListener('hashchange', () => this.go(location.hash));
    if (location.hash.length > 1) this.go(location.hash);
    this.mark_current();
  }

  fields(path: string): Fields {
    return new Fields(this.result, path);
  }

  /** That a part of the result is shown, so that rest() does not show it again. */
  claim(...keys: string[]): void {
    for (const key of keys) this.claimed.add(key);
  }

  section(id: string, title: string, ...children: Child[]): HTMLElement {
    const heading = el('h2', { tabindex: -1, id: `${id}-title` }, title);
    const section = el('section', { id, 'aria-labelledby': `${id}-title` }, heading, ...children);
    this.main.append(section);
    const link = el('a', { href: `#${id}` }, title);
    this.links.set(id, link);
    this.nav_list.append(el('li', {}, link));
    if (!this.routes.has(id)) this.routes.set(id, () => section);
    return section;
  }

  route(name: string, route: Route): void {
    this.routes.set(name, route);
  }

  /** A table that its section's address leads to: #ID?column=value. */
  table(spec: Omit<TableSpec, 'fields'> & { path?: string }): HTMLElement {
    const table: DataTable = data_table({ ...spec, fields: this.fields(spec.path ?? spec.id) });
    this.route(spec.id, (_, query) => {
      table.show(query);
      return document.getElementById(spec.id) ?? table.root;
    });
    return table.root;
  }

  /** What nobody claimed: of results and lists that this page was not made for, each a section of its own. */
  rest(): void {
    const single: Row = {};
    for (const [key, value] of Object.entries(this.data)) {
      if (this.claimed.has(key)) continue;
      const title = title_of(key);
      if (is_table(value) && value.length > 0) {
        this.list(key);
      } else if (row_of(value)) {
        this.section(key, title, ...this.record(key, row_of(value) as Row));
      } else if (Array.isArray(value) && value.length > 0) {
        this.section(key, title, el('ul', {}, ...value.map((one) => el('li', {}, shortened(String(one), 4000)))));
      } else if (!Array.isArray(value)) {
        single[key] = value;
      }
    }
    if (Object.keys(single).length > 0)
      this.section('about', 'About this result', description('Single values', single, this.fields('')));
  }

  /** A list of the result as a section of its own; nothing where it has no rows. */
  list(key: string): void {
    const rows = rows_of(this.data[key]);
    this.claim(key);
    if (rows.length === 0) return;
    const title = title_of(key);
    this.section(
      key,
      title,
      this.table({ id: key, caption: `${title}, as a table`, rows, group_by: text_columns(rows) }),
    );
  }

  /** A record: its values, then its lists. */
  record(path: string, record: Row, title = name_of(path)): HTMLElement[] {
    const values: Row = {};
    const tables: HTMLElement[] = [];
    for (const [key, value] of Object.entries(record)) {
      const inner = row_of(value);
      if (is_table(value) && value.length > 0)
        tables.push(
          data_table({
            id: `${path}.${key}`,
            caption: `${name_of(key)} of ${title}`,
            rows: value,
            fields: this.fields(`${path}.${key}`),
          }).root,
        );
      else if (inner && Object.values(inner).every((one) => row_of(one)))
        tables.push(
          data_table({
            id: `${path}.${key}`,
            caption: `${name_of(key)} of ${title}`,
            rows: Object.entries(inner).map(([name, row]) => ({ name, ...(row as Row) })),
            fields: this.fields(`${path}.${key}`),
            bare: true,
          }).root,
        );
      else if (inner) for (const [name, one] of Object.entries(inner)) values[`${key}.${name}`] = one;
      else if (!Array.isArray(value) || value.length > 0) values[key] = value;
    }
    return [description(title, values, this.fields(path)), ...tables];
  }

  private go(hash: string): void {
    const address = hash.replace(/^#/, '');
    const [place = '', query = ''] = split_at(address, '?');
    const [name = '', rest = ''] = split_at(place, '/');
    const route = this.routes.get(safe_decode(name));
    const target = route?.(safe_decode(rest), new URLSearchParams(query)) ?? null;
    if (!target) return;
    target.scrollIntoView();
    (target.querySelector<HTMLElement>('h2, h3') ?? target).focus({ preventScroll: true });
  }

  private mark_current(): void {
    const seen = new Set<string>();
    const observer = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) entry.isIntersecting ? seen.add(entry.target.id) : seen.delete(entry.target.id);
        let current = '';
        for (const [id, link] of this.links) {
          if (current === '' && seen.has(id)) current = id;
          link.removeAttribute('aria-current');
        }
        this.links.get(current)?.setAttribute('aria-current', 'true');
      },
      { rootMargin: '-10% 0px -60% 0px' },
    );
    for (const section of this.main.children) observer.observe(section);
  }
}

const title_of = (key: string): string => name_of(key).replace(/^./, (first) => first.toUpperCase());

function split_at(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

function safe_decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Columns by which rows can be grouped: texts that more rows than one share. */
export function text_columns(rows: Row[]): string[] {
  return columns_of(rows).filter((column) => {
    const values = rows.map((row) => row[column]).filter((value): value is string => typeof value === 'string');
    return values.length > 0 && new Set(values).size < values.length;
  });
}

/** #kernels?name=...: the address of rows. */
export const link_to = (id: string, values: Record<string, string>): string =>
  `#${id}?${new URLSearchParams(values).toString()}`;

/** Why a part is not there: what the result itself says it cannot tell, as far as the words find it. */
export function why_missing(page: Page, about: RegExp): HTMLElement {
  const reasons = rows_of(page.data['cannot_tell']).filter((row) => about.test(text_of(row['question'])));
  const note = el('p', { class: 'missing' }, 'Not in this recording. ');
  for (const row of reasons)
    note.append(
      `${shortened(text_of(row['question']), 400)} ${shortened(text_of(row['why']), 400)}; ${shortened(text_of(row['how_to_find_out']), 400)}. `,
    );
  note.append(el('a', { href: '#unknown' }, 'What is not known'));
  return note;
}
