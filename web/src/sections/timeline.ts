// The timeline. It is unpacked and drawn when its section comes near, or an address leads to it: #timeline/median:STAGE,
// #timeline/slowest:STAGE, #timeline/run, #timeline?start=NS&end=NS,
// #timeline?name=NAME, the first slice of that name.
import { el, shortened } from '../dom';
import type { Page } from '../page';
import { packed_timeline, timeline_missing } from '../result';
import { mountTimeline, type MountedTimeline } from '../timeline';

/** Of a page that `llmprof serve` serves: why it has none, or where it can be had. */
function say_missing(page: Page): void {
  const missing = timeline_missing();
  if (!missing) return;
  const { why, address } = missing;
  const about =
    address === null
      ? el('p', { class: 'note' }, `There is no timeline: ${shortened(why, 300)}`)
      : el(
          'p',
          { class: 'note' },
          'None was kept of this run. ',
          el('a', { href: `${address}#timeline` }, 'Make it from the recording'),
          ', which takes seconds, of a large one minutes.',
        );
  page.section('timeline', 'Timeline', about);
}

export function add_timeline(page: Page): void {
  const packed = packed_timeline();
  if (!packed) return say_missing(page);
  const place = el('div', { class: 'timeline-place' }, el('p', { class: 'note' }, 'The timeline is being unpacked.'));
  const section = page.section('timeline', 'Timeline', place);
  let mounted: Promise<MountedTimeline> | null = null;
  const open = (selected?: string): Promise<MountedTimeline> =>
    (mounted ??= packed().then((bytes) => {
      place.replaceChildren();
      const timeline = mountTimeline(place, bytes, selected);
      // Behind the frame that shows it.
      requestAnimationFrame(() =>
        setTimeout(() => {
          section.dataset['drawn'] = '';
          performance.mark('timeline-drawn');
        }),
      );
      return timeline;
    }));
  const failed = (error: unknown): void => {
    const why = error instanceof Error ? error.message : String(error);
    place.replaceChildren(el('p', { class: 'failed', role: 'alert' }, `The timeline cannot be shown: ${why}`));
  };
  page.route('timeline', (which, query) => {
    const start = Number(query.get('start') ?? NaN);
    const end = Number(query.get('end') ?? NaN);
    const name = query.get('name');
    open(which)
      .then((timeline) => {
        if (end > start) timeline.show(start, end);
        else if (which) timeline.open(which);
        if (name) timeline.find(name);
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
