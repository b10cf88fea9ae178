// The timeline of one steady step per stage, where the page holds one. Its bytes are unpacked when somebody wants to see
// it, not before. What draws it is handed in by main.ts.
import { el } from '../dom';
import { packed_timeline } from '../result';
import type { Page } from '../page';

export interface Timeline {
  destroy(): void;
  show(start_ns: number, end_ns: number): void;
}
export type MountTimeline = (root: HTMLElement, packed: Uint8Array, selected?: string) => Timeline;

export const add_timeline =
  (mount: MountTimeline) =>
  (page: Page): void => {
    const packed = packed_timeline();
    if (!packed) return;
    const root = el('div', { class: 'timeline' });
    let opened: Promise<Timeline> | null = null;
    const open = (selected?: string): Promise<Timeline> =>
      (opened ??= packed().then((bytes) => mount(root, bytes, selected)));
    const details = el('details', {}, el('summary', {}, 'draw the timeline'), root);
    details.addEventListener('toggle', () => {
      if (details.open)
        open().catch((error: unknown) =>
          root.replaceChildren(el('p', { role: 'alert' }, `The timeline cannot be drawn: ${String(error)}`)),
        );
    });
    const section = page.section('timeline', 'Timeline', details);
    page.route('timeline', (rest, query) => {
      details.open = true;
      const [start, end] = [Number(query.get('start')), Number(query.get('end'))];
      void open(query.get('name') ?? (rest || undefined)).then((timeline) => end > start && timeline.show(start, end));
      return section;
    });
  };
