// The timeline of a recording: canvas, search, buttons, and what is selected in words.
import './timeline.css';
import { el, shortened } from '../dom';
import { format_count } from '../format';
import { decode, type Stage, type Timeline } from './decode';
import { find, matcher, step_found } from './find';
import { listen } from './input';
import { rows_between } from './layout';
import { details, help, spoken, totals_of } from './panels';
import { format_span } from './time';
import { View } from './view';

export interface MountedTimeline {
  destroy(): void;
  /** A stretch of the recording, in ns from the beginning of the timeline. */
  show(start_ns: number, end_ns: number): void;
  /** "median:STAGE", "slowest:STAGE" or "run". */
  open(selected: string): void;
  /** Searches for a name and selects the first slice that has it. */
  find(name: string): void;
}

/** `selected`: what it opens with, as open() takes it; else the median step of the first stage. */
export function mountTimeline(root: HTMLElement, packed: Uint8Array, selected?: string): MountedTimeline {
  return new Mounted(root, decode(packed), selected);
}

class Mounted implements MountedTimeline {
  private readonly view: View;
  private readonly box: HTMLElement;
  private readonly hint = el('div', { class: 'timeline-hint', hidden: true });
  private readonly said = el('p', { class: 'timeline-said', 'aria-live': 'polite' });
  private readonly about = el('div', { class: 'timeline-about' });
  private readonly search = el('input', {
    type: 'search',
    placeholder: 'name or /expression/',
    'aria-label': 'Search the names of all slices',
    spellcheck: 'false',
  });
  private readonly found = el('output', { class: 'timeline-found' });
  private readonly table_button = el('button', { type: 'button', 'aria-pressed': 'false' }, 'Table of what is visible');
  private readonly help_panel = el('div', { class: 'timeline-help', hidden: true }, help());
  private readonly stop_listening: () => void;
  private readonly whole: HTMLElement;
  private table_wait = 0;
  private search_wait = 0;

  constructor(
    root: HTMLElement,
    private readonly timeline: Timeline,
    selected: string | undefined,
  ) {
    this.box = el('div', {
      class: 'timeline-box',
      tabindex: 0,
      role: 'application',
      'aria-label': 'Timeline. Arrow keys go from slice to slice, Enter selects one, question mark lists the keys.',
    });
    this.whole = el('div', { class: 'timeline' }, this.toolbar(), this.merged_note(), this.help_panel, this.box);
    this.whole.append(this.said, this.about);
    root.append(this.whole);
    this.view = new View(timeline, this.box);
    this.box.append(this.hint);
    this.view.drawn = () => this.behind_frame();
    this.stop_listening = listen(this.box, this.view, {
      select: (slice) => this.select(slice),
      move_cursor: (slice) => this.move_cursor(slice),
      hover: (slice, x, y) => this.hover(slice, x, y),
      area: (finished) => this.area(finished),
      fit: () => this.fit(),
      mark: () => this.mark(),
      search: () => {
        this.search.focus();
        this.search.select();
      },
      next: (forward) => this.next(forward),
      visible: () => this.select_visible(),
      drop: () => this.drop(),
      help: () => (this.help_panel.hidden = !this.help_panel.hidden),
    });
    this.open(selected ?? '');
    this.view.draw();
  }

  destroy(): void {
    clearTimeout(this.table_wait);
    clearTimeout(this.search_wait);
    this.stop_listening();
    this.view.destroy();
    this.whole.remove();
  }

  show(start_ns: number, end_ns: number): void {
    this.view.fit(start_ns, end_ns);
  }

  find(name: string): void {
    this.search.value = name;
    this.run_search();
    this.next(true);
  }

  // ---- what stands above

  private toolbar(): HTMLElement {
    const bar = el('div', { class: 'timeline-bar', role: 'toolbar', 'aria-label': 'Timeline' });
    const { stages } = this.timeline;
    if (stages.length > 0) {
      const choice = el('select', { 'aria-label': 'Stage' });
      stages.forEach((stage, i) => choice.append(el('option', { value: i }, shortened(stage.stage, 60))));
      const chosen = (): Stage => stages[Number(choice.value)] ?? stages[0]!;
      if (stages.length > 1) bar.append(choice);
      bar.append(
        this.button('Median step', () => this.show_step(chosen(), 'median')),
        this.button('Slowest step', () => this.show_step(chosen(), 'slowest')),
      );
    }
    bar.append(
      this.button('Whole run', () => this.show_run()),
      this.search,
      this.found,
      this.button('Previous', () => this.next(false)),
      this.button('Next', () => this.next(true)),
      this.table_button,
      this.button('Keys', () => (this.help_panel.hidden = !this.help_panel.hidden)),
    );
    this.table_button.addEventListener('click', () => this.toggle_table());
    this.search.addEventListener('input', () => {
      clearTimeout(this.search_wait);
      this.search_wait = setTimeout(() => this.run_search(), 60);
    });
    this.search.addEventListener('keydown', (event) => this.search_key(event));
    return bar;
  }

  private button(words: string, what: () => void): HTMLElement {
    return el('button', { type: 'button', click: what }, words);
  }

  private merged_note(): HTMLElement | null {
    const { merged } = this.timeline;
    if (!merged) return null;
    const words = `This recording has more slices than a page can hold: ${format_count(merged.slices)} that are shorter than ${format_span(merged.below_ns)} are merged with their neighbours. The median and the slowest step of each stage are shown whole.`;
    return el('p', { class: 'timeline-note' }, words);
  }

  // ---- what is shown

  open(selected: string): void {
    const [which, ...rest] = selected.split(':');
    const name = rest.join(':');
    const { stages } = this.timeline;
    const stage = stages.find((one) => one.stage === name) ?? stages[0];
    if (which === 'run' || !stage) this.show_run();
    else this.show_step(stage, which === 'slowest' ? 'slowest' : 'median');
  }

  private show_step(stage: Stage, which: 'median' | 'slowest'): void {
    const step = stage[which];
    this.view.mark = null;
    this.view.fit(step.from_ns, step.end_ns);
    const of = stage.steps === 1 ? 'the only steady step' : `the ${which} of ${format_count(stage.steps)} steady steps`;
    this.say(`${shortened(stage.stage, 60)}: ${of}, ${format_span(step.end_ns - step.start_ns)}`);
  }

  private show_run(): void {
    this.view.fit(0, this.timeline.duration);
    this.say(`The whole run: ${format_count(this.timeline.slices)} slices, ${format_span(this.timeline.duration)}`);
  }

  private say(words: string): void {
    this.said.textContent = words;
  }

  // ---- slices

  private select(slice: number): void {
    this.view.area = null;
    this.view.select(slice);
    if (slice < 0) {
      this.about.replaceChildren();
      return;
    }
    this.view.reveal(slice);
    this.say(`Selected: ${spoken(this.view, slice)}`);
    this.about.replaceChildren(details(this.view, slice, (other) => this.select(other)));
  }

  private move_cursor(slice: number): void {
    if (slice < 0) return;
    this.view.cursor = slice;
    this.view.reveal(slice);
    this.say(spoken(this.view, slice));
  }

  private hover(slice: number, x: number, y: number): void {
    if (slice !== this.view.hovered) {
      this.view.hovered = slice;
      this.view.changed();
    }
    this.hint.hidden = slice < 0;
    if (slice < 0) return;
    this.hint.textContent = `${shortened(this.view.name(slice), 160)}\n${format_span(this.timeline.dur[slice]!)} from ${format_span(this.timeline.start[slice]!)} on`;
    const left = Math.min(x + 14, Math.max(0, this.box.clientWidth - this.hint.offsetWidth - 4));
    const top = y + 18 + this.hint.offsetHeight > this.box.clientHeight ? y - this.hint.offsetHeight - 8 : y + 18;
    this.hint.style.transform = `translate(${left}px, ${top}px)`;
  }

  private area(finished: boolean): void {
    this.view.changed();
    const { area } = this.view;
    if (!area || !finished) return;
    this.hint.hidden = true;
    this.view.select(-1);
    const rows = rows_between(this.timeline, this.view.layout, area.top, area.bottom);
    const table = totals_of(this.view, rows, area.from, area.to, 'Selected area');
    this.say(table.getAttribute('aria-label') ?? '');
    this.about.replaceChildren(table);
  }

  private select_visible(): void {
    const { view } = this;
    view.area = {
      from: Math.max(0, view.from),
      to: Math.min(view.to, this.timeline.duration),
      top: 0,
      bottom: view.layout.height,
    };
    this.area(true);
  }

  private stretch(): { from: number; to: number } | null {
    const { area, selected } = this.view;
    if (area) return { from: area.from, to: area.to };
    if (selected < 0) return null;
    const from = this.timeline.start[selected]!;
    return { from, to: from + this.timeline.dur[selected]! };
  }

  private fit(): void {
    const stretch = this.stretch();
    if (stretch) this.view.fit(stretch.from, stretch.to);
  }

  private mark(): void {
    const stretch = this.stretch();
    const { mark } = this.view;
    this.view.mark = !stretch || (mark && mark.from === stretch.from && mark.to === stretch.to) ? null : stretch;
    this.say(this.view.mark ? `Marked ${format_span(this.view.mark.to - this.view.mark.from)}` : 'No mark');
    this.view.changed();
  }

  private drop(): void {
    this.view.area = this.view.mark = null;
    this.view.select(-1);
    this.help_panel.hidden = true;
    this.about.replaceChildren();
    this.say('Nothing selected');
  }

  // ---- search

  private run_search(): void {
    clearTimeout(this.search_wait);
    const words = this.search.value;
    const meant = words === '' ? null : matcher(words);
    this.view.found = meant ? find(this.timeline, meant) : null;
    this.found.textContent =
      words === ''
        ? ''
        : this.view.found
          ? `${format_count(this.view.found.count)} slices, ${format_count(this.view.found.names)} names`
          : 'no such expression';
    this.view.changed();
  }

  private search_key(event: KeyboardEvent): void {
    if (event.key === 'Enter') {
      this.run_search();
      this.next(!event.shiftKey);
      event.preventDefault();
    }
    if (event.key === 'Escape') {
      this.search.value = '';
      this.run_search();
      this.box.focus();
    }
  }

  private next(forward: boolean): void {
    if (!this.view.found || this.view.found.count === 0) return;
    const slice = step_found(this.timeline, this.view.found, this.view.selected, forward);
    this.select(slice);
  }

  // ---- the table of what is visible

  private toggle_table(): void {
    const pressed = this.table_button.getAttribute('aria-pressed') !== 'true';
    this.table_button.setAttribute('aria-pressed', String(pressed));
    if (pressed) this.fill_table();
    else this.about.replaceChildren();
  }

  private behind_frame(): void {
    if (this.table_button.getAttribute('aria-pressed') !== 'true') return;
    clearTimeout(this.table_wait);
    this.table_wait = setTimeout(() => this.fill_table(), 250);
  }

  private fill_table(): void {
    const { view } = this;
    const from = Math.max(0, view.from);
    const to = Math.min(view.to, this.timeline.duration);
    const rows = rows_between(this.timeline, view.layout, view.scroll, view.scroll + view.view_height);
    this.about.replaceChildren(totals_of(view, rows, from, to, 'Visible'));
  }
}
