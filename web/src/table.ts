// Tables to sort, filter, group and copy. Rows and names of columns are those of the result, so that what is seen here can
// be found in JSON and CSV. A link such as #kernels?name=gemm&stage=decode shows the rows that have these values.
import { copy_text, csv_of } from './csv';
import { el, shortened, type Child } from './dom';
import { type Fields } from './fields';
import { number_of, row_of, text_of, type Row, type Value } from './result';

export interface TableSpec {
  id: string; // of the section that addresses name: kernels
  caption: string;
  rows: Row[];
  fields: Fields;
  columns?: string[]; // that are seen at first, in this order; all others behind "all columns"
  sums?: string[]; // columns that add up over rows, for groups
  group_by?: string[]; // columns to group by
  link?: (column: string, row: Row) => string | null; // where a cell leads
  describe?: (row: Row) => Child; // below the table, of the rows that a link asks for
  short?: Record<string, (value: string) => string>; // shorter texts of a column; the whole one is beside it
  bare?: boolean; // without controls
}

export interface DataTable {
  root: HTMLElement;
  show(wanted: URLSearchParams): void;
}

const kFirstRows = 25;
const kDescribed = 4; // rows that a link may ask for and see described in full

type Direction = 'ascending' | 'descending';

/** Records inside a row as columns of it, under their name. */
export function flattened(row: Row, prefix = ''): Row {
  const out: Row = {};
  for (const [key, value] of Object.entries(row)) {
    const inner = row_of(value);
    if (inner) Object.assign(out, flattened(inner, `${prefix}${key}.`));
    else out[prefix + key] = value;
  }
  return out;
}

export function columns_of(rows: Row[]): string[] {
  const names = new Set<string>();
  for (const row of rows) for (const key of Object.keys(row)) names.add(key);
  return [...names];
}

const is_numeric = (rows: Row[], column: string): boolean => {
  let seen = false;
  for (const row of rows) {
    const value = row[column];
    if (value === null || value === undefined) continue;
    if (typeof value !== 'number' && typeof value !== 'bigint') return false;
    seen = true;
  }
  return seen;
};

function compare(a: Value | undefined, b: Value | undefined, direction: Direction): number {
  const none_a = a === null || a === undefined;
  const none_b = b === null || b === undefined;
  if (none_a || none_b) return Number(none_a) - Number(none_b); // what is not known stands last, whichever the order
  const numeric = number_of(a) !== null && number_of(b) !== null;
  const order = numeric
    ? Number((a as number) > (b as number)) - Number((a as number) < (b as number))
    : String(a) < String(b)
      ? -1
      : String(a) > String(b)
        ? 1
        : 0;
  return direction === 'ascending' ? order : -order;
}

class Table implements DataTable {
  readonly root: HTMLElement;
  private readonly rows: Row[];
  private readonly every_column: string[];
  private readonly numeric: Set<string>;
  private readonly body = el('tbody');
  private readonly head = el('thead');
  private readonly status = el('p', { class: 'count', role: 'status' });
  private readonly more = el('button', { type: 'button', class: 'more' });
  private readonly chosen = el('p', { class: 'chosen', hidden: true });
  private readonly described = el('div', { class: 'described' });
  private readonly filter = el('input', { type: 'search', spellcheck: 'false', autocomplete: 'off' });
  private readonly regex = el('input', { type: 'checkbox' });
  private readonly all = el('input', { type: 'checkbox' });
  private readonly group = el('select');
  private sort: { column: string; direction: Direction } | null = null;
  private wanted: [string, string][] = [];
  private limit = kFirstRows;

  constructor(private readonly spec: TableSpec) {
    this.rows = spec.rows.map((row) => flattened(row));
    this.every_column = columns_of(this.rows);
    this.numeric = new Set(this.every_column.filter((column) => is_numeric(this.rows, column)));
    const table = el('table', {}, el('caption', {}, spec.caption), this.head, this.body);
    // A region that scrolls must be reached by the keyboard, and say what it is.
    const scroll = el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': spec.caption }, table);
    this.more.addEventListener('click', () => {
      this.limit = Infinity;
      this.draw();
    });
    this.root = el(
      'div',
      { class: 'table', 'data-table': spec.id },
      spec.bare ? null : this.controls(),
      this.chosen,
      scroll,
      this.more,
      this.described,
    );
    this.draw();
  }

  show(wanted: URLSearchParams): void {
    this.wanted = [...wanted].filter(([column]) => this.every_column.includes(column));
    this.filter.value = wanted.get('filter') ?? '';
    this.group.value = '';
    this.draw();
  }

  private controls(): HTMLElement {
    const redraw = (): void => {
      this.limit = kFirstRows;
      this.draw();
    };
    for (const input of [this.filter, this.regex, this.all, this.group]) input.addEventListener('input', redraw);
    const copy = el('button', { type: 'button' }, 'copy as CSV');
    copy.addEventListener('click', () => {
      const columns = this.group.value ? this.columns() : this.every_column;
      void copy_text(csv_of(columns, this.selected())).then((copied) => {
        this.status.textContent = copied
          ? `${this.selected().length} rows copied`
          : 'the browser did not let this page copy';
      });
    });
    const groups = this.spec.group_by ?? [];
    this.group.append(
      el('option', { value: '' }, 'nothing'),
      ...groups.map((name) => el('option', { value: name }, this.spec.fields.name(name))),
    );
    const hidden_columns = this.spec.columns && this.spec.columns.length < this.every_column.length;
    return el(
      'div',
      { class: 'controls' },
      el('label', {}, 'filter ', this.filter),
      el('label', {}, this.regex, ' regular expression'),
      groups.length ? el('label', {}, 'group by ', this.group) : null,
      hidden_columns ? el('label', {}, this.all, ` all ${this.every_column.length} columns`) : null,
      copy,
      this.status,
    );
  }

  private columns(): string[] {
    const group = this.group.value;
    if (group) return [group, 'rows', ...(this.spec.sums ?? []).filter((column) => this.every_column.includes(column))];
    if (!this.spec.columns || this.all.checked) return this.every_column.filter((column) => !this.is_list(column));
    return this.spec.columns.filter((column) => this.every_column.includes(column));
  }

  private is_list(column: string): boolean {
    return this.rows.some((row) => Array.isArray(row[column]) && (row[column] as Value[]).some((one) => row_of(one)));
  }

  private matcher(): (row: Row) => boolean {
    const text = this.filter.value;
    this.filter.removeAttribute('aria-invalid');
    if (!text) return () => true;
    let matches = (value: string): boolean => value.toLowerCase().includes(text.toLowerCase());
    if (this.regex.checked) {
      try {
        const pattern = new RegExp(text, 'i');
        matches = (value) => pattern.test(value);
      } catch {
        this.filter.setAttribute('aria-invalid', 'true');
        return () => false;
      }
    }
    return (row) => Object.values(row).some((value) => typeof value === 'string' && matches(value));
  }

  /** The rows that are asked for, grouped and sorted as they are. */
  private selected(): Row[] {
    const matches = this.matcher();
    let rows = this.rows.filter(
      (row) => this.wanted.every(([column, value]) => String(row[column]) === value) && matches(row),
    );
    if (this.group.value) rows = this.groups(rows, this.group.value);
    const sort = this.sort;
    if (sort) rows = [...rows].sort((a, b) => compare(a[sort.column], b[sort.column], sort.direction));
    return rows;
  }

  /** Sums of what is known of every row; a sum of parts of which some are not known is not known. */
  private groups(rows: Row[], by: string): Row[] {
    const groups = new Map<string, Row[]>();
    for (const row of rows) {
      const key = String(row[by] ?? '');
      const group = groups.get(key);
      if (group) group.push(row);
      else groups.set(key, [row]);
    }
    const sums = this.spec.sums ?? [];
    const out = [...groups].map(([key, members]) => {
      const sum: Row = { [by]: key, rows: members.length };
      for (const column of sums) {
        const values = members.map((row) => number_of(row[column]));
        sum[column] = values.includes(null) ? null : values.reduce<number>((total, value) => total + (value ?? 0), 0);
      }
      return sum;
    });
    const first = sums[0];
    return first ? out.sort((a, b) => compare(a[first], b[first], 'descending')) : out;
  }

  private draw(): void {
    const columns = this.columns();
    const rows = this.selected();
    this.head.replaceChildren(el('tr', {}, ...columns.map((column) => this.heading(column))));
    this.body.replaceChildren(...rows.slice(0, this.limit).map((row) => this.line(columns, row)));
    this.more.hidden = rows.length <= this.limit;
    this.more.textContent = `show all ${rows.length} rows`;
    const what = this.group.value ? 'groups' : 'rows';
    this.status.textContent = this.filter.getAttribute('aria-invalid')
      ? 'this is not a regular expression'
      : this.group.value || rows.length === this.rows.length
        ? `${rows.length} ${what}`
        : `${rows.length} of ${this.rows.length} ${what}`;
    this.draw_chosen(rows);
  }

  private draw_chosen(rows: Row[]): void {
    this.chosen.hidden = this.wanted.length === 0;
    this.chosen.replaceChildren();
    this.described.replaceChildren();
    if (this.wanted.length === 0) return;
    const all = el('button', { type: 'button' }, 'show all rows');
    all.addEventListener('click', () => {
      this.wanted = [];
      history.replaceState(null, '', `#${this.spec.id}`);
      this.draw();
      this.filter.focus();
    });
    const text = this.wanted
      .map(([column, value]) => `${this.spec.fields.name(column)}: ${shortened(value, 80)}`)
      .join(', ');
    this.chosen.append(rows.length ? `only ${text} ` : `no row has ${text} `, all);
    if (rows.length > 0 && rows.length <= kDescribed)
      this.described.append(
        ...rows.map((row) => description(title_of(row), row, this.spec.fields, this.spec.describe?.(row))),
      );
  }

  private heading(column: string): HTMLElement {
    const sorted = this.sort?.column === column ? this.sort.direction : null;
    const about = column === 'rows' && this.group.value ? 'rows of the group' : this.spec.fields.about(column);
    const button = el('button', { type: 'button', 'data-tip': about }, this.spec.fields.name(column));
    button.addEventListener('click', () => {
      const first: Direction = this.numeric.has(column) || column === 'rows' ? 'descending' : 'ascending';
      const other: Direction = first === 'descending' ? 'ascending' : 'descending';
      this.sort = { column, direction: sorted === first ? other : first };
      this.draw();
      // The heading was made anew.
      this.head.querySelector<HTMLElement>('[aria-sort] button')?.focus();
    });
    return el(
      'th',
      { scope: 'col', class: this.numeric.has(column) ? 'number' : null, 'aria-sort': sorted, 'data-column': column },
      button,
    );
  }

  private line(columns: string[], row: Row): HTMLElement {
    return el('tr', {}, ...columns.map((column, i) => this.cell(column, row, i === 0)));
  }

  private cell(column: string, row: Row, first: boolean): HTMLElement {
    const value = row[column];
    const text = this.spec.fields.show(column, value, row);
    const tag = first ? 'th' : 'td';
    const scope = first ? 'row' : null;
    if (text === null)
      return el(
        tag,
        { scope, class: 'none' },
        el('span', { role: 'img', 'aria-label': 'not known', 'data-tip': kNotKnown }, '–'),
      );
    const shorter = typeof value === 'string' ? this.spec.short?.[column]?.(value) : undefined;
    const shown = shortened(shorter ?? text);
    const link =
      this.group.value && column === this.group.value
        ? `#${this.spec.id}?${new URLSearchParams([[column, text]]).toString()}`
        : this.spec.link?.(column, row);
    const tip =
      typeof value === 'string' && (value.length > 28 || shorter !== undefined) ? shortened(value, 2000) : null;
    const inner: Child = link ? el('a', { href: link, 'data-tip': tip }, shown) : shown;
    const kind = number_of(value) !== null ? 'number' : shown.length > 28 ? 'long' : null;
    return el(tag, { scope, class: kind, 'data-tip': link ? null : tip }, inner);
  }
}

export const kNotKnown = 'not known; what this recording does not answer, and why: section "not known"';

const title_of = (row: Row): string =>
  text_of(row['name']) || text_of(row['kernel']) || text_of(row['cause']) || text_of(row['stage']) || 'row';

/** Every field of a row, with what it is. */
export function description(title: string, row: Row, fields: Fields, extra?: Child): HTMLElement {
  const list = el('dl', { class: 'fields' });
  for (const [column, value] of Object.entries(row)) {
    const text = fields.show(column, value, row);
    list.append(
      el(
        'div',
        {},
        el('dt', {}, fields.name(column)),
        el('dd', { class: text === null ? 'none' : null }, text === null ? 'not known' : shortened(text, 4000)),
        number_of(value) !== null && fields.provenance(column, row)
          ? el('dd', { class: 'from' }, fields.provenance(column, row))
          : null,
      ),
    );
  }
  return el('div', { class: 'row' }, el('h3', {}, shortened(title, 200)), extra ?? null, list);
}

export const data_table = (spec: TableSpec): DataTable => new Table(spec);
