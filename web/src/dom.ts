// Elements. Data only ever becomes text or attributes: nothing here parses HTML.

export type Child = Node | string | null | undefined | false;

export interface Attributes {
  [name: string]: string | number | boolean | null | undefined | ((event: never) => void);
}

function fill(node: Element, attributes: Attributes, children: Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') node.addEventListener(name, value as EventListener);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) if (child) node.append(child);
}

/** el('p', {class: 'note'}, 'text', child); a function among the attributes listens to the event of that name. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  fill(node, attributes, children);
  return node;
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  fill(node, attributes, children);
  return node;
}

// Control characters, those that turn the direction of writing, and invisible ones: names come from anyone's recording.
const unprintable =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** The text with such characters escaped, as llmprof's pages of text have them. */
export function printable(text: string): string {
  return text.replace(unprintable, (c) => {
    const code = c.charCodeAt(0);
    return code < 0x100 ? '\\x' + code.toString(16).padStart(2, '0') : '\\u' + code.toString(16).padStart(4, '0');
  });
}

/** At most `most` characters, for places where a name of megabytes would be of no use. */
export function shortened(text: string, most = 160): string {
  return printable(text.length > most ? text.slice(0, most - 1) + '…' : text);
}
