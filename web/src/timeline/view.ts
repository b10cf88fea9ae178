// The canvas and what is shown on it: a stretch of time, a scroll, a selection. Changes ask for one frame each.
import { tint_colors, theme_of, type Theme } from './colors';
import { first_ending_after, first_starting_at, track_of, type Row, type Timeline } from './decode';
import { LABELS, paint, RULER, type Frame } from './draw';
import {
  collapsed_at_first,
  item_at,
  lay_out,
  middle_of,
  row_at,
  ROW_HEIGHT,
  type Collapsed,
  type Layout,
} from './layout';
import type { Found } from './find';
import { printable } from '../dom';

const SHORTEST = 10; // ns, the least that is shown across
const FONT = 11;

export interface Area {
  from: number;
  to: number;
  top: number; // px from the first track on
  bottom: number;
}

export class View {
  readonly canvas: HTMLCanvasElement;
  from = 0;
  to: number;
  scroll = 0;
  selected = -1;
  cursor = -1;
  hovered = -1;
  found: Found | null = null;
  area: Area | null = null;
  mark: { from: number; to: number } | null = null;
  flows: number[] = [];
  layout: Layout;
  readonly collapsed: Collapsed;
  /** Called behind each frame. */
  drawn: () => void = () => {};

  private width = 0;
  private height = 0;
  private frame = 0;
  private theme: Theme;
  private char = 0;
  private readonly colors: string[];
  private readonly labels: string[] = [];
  private readonly context: CanvasRenderingContext2D;
  private readonly resized: ResizeObserver;
  private readonly chosen = new MutationObserver(() => this.restyle());

  constructor(
    readonly timeline: Timeline,
    private readonly box: HTMLElement,
  ) {
    this.to = timeline.duration;
    this.colors = tint_colors(timeline.tints);
    this.collapsed = collapsed_at_first(timeline);
    this.layout = lay_out(timeline, this.collapsed);
    this.canvas = document.createElement('canvas');
    this.canvas.setAttribute('aria-hidden', 'true'); // the box around it speaks
    box.append(this.canvas);
    const context = this.canvas.getContext('2d', { alpha: false });
    if (!context) throw new Error('expected a browser with a 2D canvas, found none');
    this.context = context;
    this.theme = theme_of(box);
    // No higher than all that can be shown.
    box.style.maxHeight = `${lay_out(timeline, { groups: new Set(), tracks: new Set() }).height + RULER + 12}px`;
    this.measure();
    this.resized = new ResizeObserver(() => this.measure());
    this.resized.observe(box);
    this.chosen.observe(document.documentElement, { attributeFilter: ['data-theme'] });
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
    this.chosen.disconnect();
  }

  private readonly restyle = (): void => {
    this.theme = theme_of(this.box);
    this.changed();
  };

  private measure(): void {
    const ratio = devicePixelRatio || 1;
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    this.canvas.width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * ratio));
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.font = `${FONT}px monospace`;
    this.char = this.context.measureText('0123456789').width / 10;
    this.theme = theme_of(this.box);
    this.changed();
  }

  changed(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw(): void {
    this.scroll = Math.max(0, Math.min(this.scroll, this.layout.height - (this.height - RULER)));
    if (this.width <= LABELS || this.height <= RULER) return;
    const frame: Frame = {
      timeline: this.timeline,
      layout: this.layout,
      from: this.from,
      to: this.to,
      scroll: this.scroll,
      width: this.width,
      height: this.height,
      colors: this.colors,
      theme: this.theme,
      font: { size: FONT, char: this.char, family: 'monospace' },
      label: (slice) => this.label(this.timeline.name[slice]!),
      selected: this.selected,
      cursor: this.cursor,
      hovered: this.hovered,
      found: this.found?.by_row ?? null,
      area: this.area,
      mark: this.mark,
      flows: this.flows,
    };
    paint(this.context, frame);
    this.drawn();
  }

  /** A name where there is little room. */
  label(text: number): string {
    return (this.labels[text] ??= printable((this.timeline.shorts[text] ?? this.timeline.texts[text]!).slice(0, 200)));
  }
  /** The whole name. */
  name(slice: number): string {
    return printable(this.timeline.texts[this.timeline.name[slice]!]!);
  }

  // ---- time

  show(from: number, to: number): void {
    const span = Math.min(Math.max(to - from, SHORTEST), this.timeline.duration * 1.1);
    const middle = (from + to) / 2;
    const slack = span * 0.05; // a little beyond the ends
    const begin = Math.max(-slack, Math.min(middle - span / 2, this.timeline.duration + slack - span));
    this.from = begin;
    this.to = begin + span;
    this.changed();
  }
  /** With a little around it. */
  fit(from: number, to: number): void {
    const around = Math.max((to - from) * 0.04, 1);
    this.show(from - around, to + around);
  }
  zoom(factor: number, at: number = (this.from + this.to) / 2): void {
    const span = Math.min(Math.max((this.to - this.from) * factor, SHORTEST), this.timeline.duration * 1.1);
    const share = (at - this.from) / (this.to - this.from);
    const from = at - share * span;
    this.show(from, from + span);
  }
  pan(share: number): void {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }
  time_at(x: number): number {
    return this.from + ((x - LABELS) / Math.max(1, this.width - LABELS)) * (this.to - this.from);
  }
  x_of(time: number): number {
    return LABELS + ((time - this.from) / (this.to - this.from)) * (this.width - LABELS);
  }

  // ---- height

  get view_height(): number {
    return this.height - RULER;
  }
  scroll_by(px: number): boolean {
    const before = this.scroll;
    this.scroll = Math.max(0, Math.min(this.scroll + px, this.layout.height - this.view_height));
    if (this.scroll !== before) this.changed();
    return this.scroll !== before;
  }
  /** From the top of the first track, of a point of the canvas. */
  y_of(canvas_y: number): number {
    return canvas_y - RULER + this.scroll;
  }
  toggle(kind: 'group' | 'track', at: number): void {
    const set = kind === 'group' ? this.collapsed.groups : this.collapsed.tracks;
    if (!set.delete(at)) set.add(at);
    this.layout = lay_out(this.timeline, this.collapsed);
    this.area = null;
    this.changed();
  }

  // ---- slices

  slice_at(x: number, y: number): number {
    if (x < LABELS || y < RULER) return -1;
    const row = row_at(this.timeline, this.layout, this.y_of(y));
    if (!row) return -1;
    const { start, dur } = this.timeline;
    const time = this.time_at(x);
    const pixel = (this.to - this.from) / Math.max(1, this.width - LABELS);
    const i = first_ending_after(this.timeline, row.ids, time - pixel);
    // Of the narrow ones around the pointer the longest.
    let best = -1;
    const end = Math.min(row.ids.length, first_starting_at(this.timeline, row.ids, time + pixel, i), i + 64);
    for (let at = i; at < end; ++at) {
      const id = row.ids[at]!;
      if (start[id]! <= time && start[id]! + dur[id]! > time) return id;
      if (best < 0 || dur[id]! > dur[best]!) best = id;
    }
    return best;
  }

  row_of(slice: number): Row {
    return track_of(this.timeline, slice).rows[this.timeline.depth[slice]!]!;
  }

  select(slice: number): void {
    this.selected = slice;
    this.cursor = slice;
    this.flows = slice < 0 ? [] : this.connected(slice);
    this.changed();
  }

  /** Slices that lead to it, or to which it leads. */
  private connected(slice: number): number[] {
    const most = 200;
    const { flow } = this.timeline;
    const out: number[] = [];
    if (flow[slice]! >= 0) out.push(flow[slice]!);
    for (const track of this.timeline.tracks) {
      // That it is on the critical path is marked; idle time before an activity stands right before it.
      if (track.kind === 'path' || track.kind === 'idle') continue;
      for (let i = track.first; i < track.first + track.count && out.length < most; ++i)
        if (flow[i] === slice) out.push(i);
    }
    return out;
  }

  on_path(slice: number): boolean {
    const { path } = this.row_of(slice);
    const at = first_starting_at(this.timeline, path, this.timeline.start[slice]!);
    for (let i = at; i < path.length && path[i]! <= slice; ++i) if (path[i] === slice) return true;
    return false;
  }

  /** Moves the view as far as it takes to see a slice. */
  reveal(slice: number): void {
    const { start, dur } = this.timeline;
    const track = track_of(this.timeline, slice);
    const number = this.timeline.tracks.indexOf(track);
    if (this.collapsed.groups.has(track.group)) this.toggle('group', track.group);
    if (this.collapsed.tracks.has(number) && this.timeline.depth[slice]! > 0) this.toggle('track', number);
    const begin = start[slice]!;
    const end = begin + dur[slice]!;
    if (end < this.from || begin > this.to) {
      const span = Math.max(this.to - this.from, dur[slice]! * 1.1);
      this.show((begin + end) / 2 - span / 2, (begin + end) / 2 + span / 2);
    }
    const y = middle_of(this.timeline, this.layout, number, this.timeline.depth[slice]!);
    if (y !== null && (y < this.scroll + ROW_HEIGHT || y > this.scroll + this.view_height - ROW_HEIGHT))
      this.scroll = y - this.view_height / 2;
    this.changed();
  }

  /** The slice beside the cursor in its row; without a cursor the first that is visible. */
  beside(by: 1 | -1): number {
    if (this.cursor < 0) return this.first_visible();
    const row = this.row_of(this.cursor);
    let low = first_starting_at(this.timeline, row.ids, this.timeline.start[this.cursor]!);
    while (low < row.ids.length && row.ids[low] !== this.cursor) ++low;
    return row.ids[low + by] ?? this.cursor;
  }

  /** The slice of the next row that has any, nearest to the cursor. */
  in_next_row(by: 1 | -1): number {
    if (this.cursor < 0) return this.first_visible();
    const rows = this.laid_out_rows();
    const own = rows.indexOf(this.row_of(this.cursor));
    const time = this.timeline.start[this.cursor]!;
    const next = rows[own + by];
    if (own < 0 || !next) return this.cursor;
    const at = first_ending_after(this.timeline, next.ids, time);
    return next.ids[Math.min(at, next.ids.length - 1)]!;
  }

  laid_out_rows(): Row[] {
    return this.layout.items.flatMap((item) => {
      if (item.kind !== 'track') return [];
      const rows = this.timeline.tracks[item.track]!.rows;
      return item.collapsed ? rows.slice(0, 1) : rows;
    });
  }

  private first_visible(): number {
    for (const row of this.laid_out_rows()) {
      const at = first_ending_after(this.timeline, row.ids, this.from);
      const id = row.ids[at];
      if (id !== undefined && this.timeline.start[id]! < this.to) return id;
    }
    return -1;
  }

  item_at(canvas_y: number): ReturnType<typeof item_at> {
    return item_at(this.layout, this.y_of(canvas_y));
  }
}
