// What the server says. Every text in it comes from someone's command line or recording.
import { parse_json, type Row } from '../result';

/** The JSON at this address; an error with what the server said where there is none. */
export async function get(address: string): Promise<Row> {
  const answer = await fetch(address, { credentials: 'same-origin', cache: 'no-store' });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text.slice(0, 300).trim() || `the server answered ${answer.status}`);
  return parse_json(text);
}

/** "2026-11-26 21:17" of nanoseconds since 1970, in the reader's time zone. */
export function time_of(unix_ns: number | null): string {
  const date = new Date((unix_ns ?? NaN) / 1e6);
  if (Number.isNaN(date.getTime())) return '';
  const two = (value: number): string => String(value).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}
