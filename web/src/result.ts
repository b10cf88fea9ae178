// What the page is about: one declared result, as `--format json` has it, and the units of its fields. It stands in the
// page as text, or, where it is large, as gzip in base64.

// bigint: nanoseconds since 1970, which a number would round.
export type Value = null | boolean | number | bigint | string | Value[] | Row;
export interface Row {
  [key: string]: Value;
}

export interface Result {
  kind: string; // report, bench, comparison, peaks, model, doctor, ...
  data: Row;
  /** Of a field by its path: units['stages.wall_ms'] is 'ms'. Lists add nothing to a path. */
  units: Readonly<Record<string, string>>;
}

/** Browsers since 2025 do it themselves, several times faster. */
function bytes_of(base64: string): Uint8Array<ArrayBuffer> {
  const { fromBase64 } = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };
  if (fromBase64) return fromBase64(base64);
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** The bytes of gzip in base64. */
export async function unpack(base64: string): Promise<Uint8Array> {
  const bytes = bytes_of(base64.trim());
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** As JSON.parse, but whole numbers stay exact where the browser shows how they were written. */
export function parse_json(text: string): Row {
  const exact = (_: string, value: Value, context?: { source?: string }): Value =>
    typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? '')
      ? BigInt(context?.source as string)
      : value;
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown) as Row;
}

async function read_json(element: HTMLElement): Promise<Row> {
  const text = element.textContent ?? '';
  if (element.dataset['encoding'] !== 'gzip-base64') return parse_json(text);
  return parse_json(new TextDecoder().decode(await unpack(text)));
}

export async function read_result(): Promise<Result> {
  const result = document.getElementById('llmprof-result');
  const units = document.getElementById('llmprof-units');
  if (!result || !units) throw new Error('expected a result in the page, found none: it was not written whole');
  return {
    kind: result.dataset['kind'] ?? '',
    data: await read_json(result),
    units: (await read_json(units)) as Record<string, string>,
  };
}

/** The packed timeline, which nobody needs to open before its section is. */
export function packed_timeline(): (() => Promise<Uint8Array>) | null {
  const element = document.getElementById('llmprof-timeline');
  return element ? () => unpack(element.textContent ?? '') : null;
}

/** Of a page that is served without one: why, or the address of the same page with one, which is of this server. */
export function timeline_missing(): { why: string; address: string | null } | null {
  const element = document.getElementById('llmprof-timeline-missing');
  if (!element) return null;
  const { why, address } = parse_json(element.textContent ?? '');
  return { why: text_of(why), address: /^\/runs\/\d+\/timeline$/.exec(text_of(address))?.[0] ?? null };
}

// ---- reading values whose type is known by the declaration, whatever the file says

export const rows_of = (value: Value | undefined): Row[] =>
  Array.isArray(value) ? value.filter((row): row is Row => row_of(row) !== null) : [];
export const row_of = (value: Value | undefined): Row | null =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? value : null;
export const number_of = (value: Value | undefined): number | null =>
  typeof value === 'number' ? value : typeof value === 'bigint' ? Number(value) : null;
export const text_of = (value: Value | undefined): string => (typeof value === 'string' ? value : '');
export const texts_of = (value: Value | undefined): string[] =>
  Array.isArray(value) ? value.filter((text): text is string => typeof text === 'string') : [];
/** Whether it is a list of records, also where it is empty of them. */
export const is_table = (value: Value | undefined): value is Row[] =>
  Array.isArray(value) && value.every((row) => row_of(row) !== null);
