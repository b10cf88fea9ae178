// The timeline. It is unpacked and drawn when its section comes near, or an address leads to it: #timeline/median:STAGE,
// #timeline/slowest:STAGE, #timeline/run, #timeline?from=NS&to=NS.
import { el } from '../dom';
import type { Page } from '../page';
import { packed_timeline } from '../result';
import { mountTimeline, type MountedTimeline } from '../timeline';

export function add_timeline(page: Page): void {
  const packed = packed_timeline();
  if (!packed) return;
  const place = el('div', { class: 'timeline-place' }, el('p', { class: 'note' }, 'The timeline is being unpacked.'));
  const section = page.section('timeline', 'Timeline', place);
  let mounted: Promise<MountedTimeline> | null = null;
  const open = (selected?: string): Promise<MountedTimeline> =>
    (mounted ??= packed().then((bytes) => {
      place.replaceChildren();
      const timeline = mountTimeline(place, bytes, selected);
      section.dataset['drawn'] = '';
      performance.mark('timeline-drawn');
      return timeline;
    }));
  const failed = (error: unknown): void => {
    const why = error instanceof Error ? error.message : String(error);
    place.replaceChildren(el('p', { class: 'failed', role: 'alert' }, `The timeline cannot be shown: ${why}`));
  };
  page.route('timeline', (which, query) => {
    const from = Number(query.get('from') ?? NaN);
    const to = Number(query.get('to') ?? NaN);
    open(which)
      .then((timeline) => {
        if (to > from) timeline.show(from, to);
        else if (which) timeline.open(which);
      })
      .catch(failed);
    return section;
  });
  const near = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      near.disconnect();
      open().catch(failed);
    },
    { rootMargin: '600px' },
  );
  near.observe(section);
}
