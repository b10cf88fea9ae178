// Rows as CSV, by the rules of docs/output.md: RFC 4180, texts that a spreadsheet would run made harmless, invisible
// characters escaped.
import type { Row, Value } from './result';

const harmful =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function cell(value: Value | undefined): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean') return String(value);
  let text =
    typeof value === 'string'
      ? value
      : Array.isArray(value)
        ? value.filter((one) => typeof one !== 'object').join(' ')
        : '';
  text = text.replace(/\\(?=u[0-9a-f]{4}|U[0-9a-f]{8})/g, '\\u005c');
  text = text.replace(harmful, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
  const is_number = text.trim() !== '' && Number.isFinite(Number(text));
  if (/^'*[=+\-@\t\n]/.test(text) && !is_number) text = `'${text}`;
  return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

export function csv_of(columns: string[], rows: Row[]): string {
  const lines = rows.map((row) => columns.map((column) => cell(row[column])).join(','));
  return [columns.join(','), ...lines].join('\n') + '\n';
}

/** Into the clipboard; false where the browser does not let a page do that. */
export async function copy_text(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}
