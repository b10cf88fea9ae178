// One frame of the timeline on a canvas. What is narrower than a pixel is drawn once for the pixel, and the rest of it is
// skipped by bisection, so that a frame takes as long as the canvas is wide and not as long as the recording.
import type { Theme } from './colors';
import { first_ending_after, first_starting_at, track_of, type Row, type Timeline } from './decode';
import { COUNTER_HEIGHT, first_item_below, middle_of, ROW_HEIGHT, type Item, type Layout } from './layout';
import { format_span, ruler_ticks } from './time';

export const LABELS = 190; // px, left of the time axis
export const RULER = 26; // px, above the tracks

export interface Frame {
  timeline: Timeline;
  layout: Layout;
  from: number; // ns
  to: number;
  scroll: number; // px
  width: number; // px, labels included
  height: number;
  colors: string[];
  theme: Theme;
  font: { size: number; char: number; family: string };
  label: (slice: number) => string; // printable name
  selected: number; // slices, -1: none
  cursor: number;
  hovered: number;
  found: Map<Row, Uint32Array> | null;
  area: { from: number; to: number; top: number; bottom: number } | null;
  mark: { from: number; to: number } | null;
  flows: number[]; // slices that an arrow leads to from the selected one, or from
}

/** Rectangles by colour: setting the colour of a canvas costs more than a rectangle. */
class Batches {
  private readonly data: number[][];
  constructor(colors: number) {
    this.data = Array.from({ length: colors }, () => []);
  }
  add(color: number, x: number, y: number, width: number, height: number): void {
    this.data[color]!.push(x, y, width, height);
  }
  paint(canvas: CanvasRenderingContext2D, colors: readonly string[]): void {
    this.data.forEach((boxes, color) => {
      if (boxes.length === 0) return;
      canvas.fillStyle = colors[color]!;
      for (let i = 0; i < boxes.length; i += 4) canvas.fillRect(boxes[i]!, boxes[i + 1]!, boxes[i + 2]!, boxes[i + 3]!);
    });
  }
}

const MIN_TEXT = 28; // px

interface Text {
  slice: number;
  x: number;
  y: number;
  width: number;
}

/** Slices of a row: `color` below 0 leaves their own. */
function row_boxes(
  frame: Frame,
  ids: Uint32Array,
  y: number,
  height: number,
  color: number,
  boxes: Batches,
  texts: Text[] | null,
): void {
  const { start, dur, tint } = frame.timeline;
  const scale = (frame.width - LABELS) / (frame.to - frame.from);
  let run_color = -1;
  let run_begin = 0;
  let run_end = 0;
  const flush = (): void => {
    if (run_color >= 0) boxes.add(run_color, run_begin, y, run_end - run_begin, height);
    run_color = -1;
  };
  let i = first_ending_after(frame.timeline, ids, frame.from);
  while (i < ids.length) {
    const id = ids[i]!;
    if (start[id]! >= frame.to) break;
    const x = LABELS + (start[id]! - frame.from) * scale;
    const right = x + dur[id]! * scale;
    const own = color < 0 ? tint[id]! : color;
    if (right - x < 1.5) {
      const pixel = Math.floor(x);
      if (own !== run_color || pixel > run_end) {
        flush();
        run_color = own;
        run_begin = pixel;
      }
      run_end = pixel + 1;
      const until = frame.from + (pixel + 1 - LABELS) / scale;
      const next = first_starting_at(frame.timeline, ids, until, i + 1);
      // The last one that begins within the pixel may reach beyond it.
      const last = ids[next - 1]!;
      i = next - 1 > i && start[last]! + dur[last]! > until ? next - 1 : next;
      continue;
    }
    flush();
    const left = Math.max(x, LABELS);
    const shown = Math.min(right, frame.width) - left;
    boxes.add(own, left, y, shown > 3 ? shown - 1 : shown, height);
    if (texts && shown >= MIN_TEXT) texts.push({ slice: id, x: left, y, width: shown });
    ++i;
  }
  flush();
}

function paint_texts(canvas: CanvasRenderingContext2D, frame: Frame, texts: readonly Text[]): void {
  canvas.fillStyle = '#15181c';
  canvas.textBaseline = 'middle';
  for (const text of texts) {
    const room = Math.floor((text.width - 6) / frame.font.char);
    const name = frame.label(text.slice);
    const words = name.length <= room ? name : name.slice(0, room - 1) + '…';
    canvas.fillText(words, text.x + 3, text.y + ROW_HEIGHT / 2);
  }
}

// ---- counters

function counter_area(
  canvas: CanvasRenderingContext2D,
  frame: Frame,
  item: Item & { kind: 'counter' },
  y: number,
): void {
  const counter = frame.timeline.counters[item.counter]!;
  const { times, values } = counter;
  const span = counter.high - counter.low || 1;
  const height = COUNTER_HEIGHT - 8;
  const bottom = y + COUNTER_HEIGHT - 4;
  const ns = (frame.to - frame.from) / (frame.width - LABELS);
  let at = 0;
  let high = times.length;
  while (at < high) {
    const middle = (at + high) >> 1;
    if (times[middle]! <= frame.from) at = middle + 1;
    else high = middle;
  }
  at = Math.max(0, at - 1); // the sample that holds at the left edge
  canvas.fillStyle = frame.theme.accent;
  canvas.beginPath();
  for (let x = LABELS; x < frame.width; ++x) {
    const until = frame.from + (x + 1 - LABELS) * ns;
    if (times[at] === undefined || times[at]! >= until) continue;
    let next = at;
    let best = values[at]!;
    // The largest of a pixel, of at most so many samples that are looked at.
    while (next + 1 < times.length && times[next + 1]! < until) ++next;
    const stride = Math.max(1, (next - at) >> 3);
    for (let i = at; i <= next; i += stride) if (!(best >= values[i]!) && !Number.isNaN(values[i]!)) best = values[i]!;
    if (!Number.isNaN(best)) {
      const tall = Math.max(1, ((best - counter.low) / span) * height);
      canvas.rect(x, bottom - tall, 1, tall);
    }
    at = next;
  }
  canvas.fill();
}

// ---- what stands around the slices

function paint_ruler(canvas: CanvasRenderingContext2D, frame: Frame): void {
  const { theme } = frame;
  const scale = (frame.width - LABELS) / (frame.to - frame.from);
  canvas.fillStyle = theme.back;
  canvas.fillRect(0, 0, frame.width, RULER);
  canvas.fillStyle = theme.faint;
  canvas.textBaseline = 'middle';
  const ticks = ruler_ticks(frame.from, frame.to, Math.max(2, Math.floor((frame.width - LABELS) / 110)));
  for (const tick of ticks.at) {
    const x = Math.round(LABELS + (tick - frame.from) * scale);
    canvas.fillRect(x, RULER - 6, 1, 6);
    canvas.fillText(format_span(tick, ticks.step), x + 3, RULER / 2 - 1);
  }
  canvas.fillText(`${format_span(frame.to - frame.from)} shown`, 8, RULER / 2);
  canvas.fillStyle = theme.line;
  canvas.fillRect(0, RULER - 1, frame.width, 1);
}

function paint_grid(canvas: CanvasRenderingContext2D, frame: Frame): void {
  const scale = (frame.width - LABELS) / (frame.to - frame.from);
  canvas.fillStyle = frame.theme.line;
  const ticks = ruler_ticks(frame.from, frame.to, Math.max(2, Math.floor((frame.width - LABELS) / 110)));
  for (const tick of ticks.at)
    canvas.fillRect(Math.round(LABELS + (tick - frame.from) * scale), RULER, 1, frame.height - RULER);
}

function label_of(frame: Frame, item: Item): string {
  const { timeline } = frame;
  if (item.kind === 'group') return timeline.groups[item.group]!;
  if (item.kind === 'counter') {
    const counter = timeline.counters[item.counter]!;
    return `${counter.name} ${counter.unit}`;
  }
  return `${item.collapsed ? '▸' : '▾'} ${timeline.tracks[item.track]!.name}`;
}

function paint_labels(canvas: CanvasRenderingContext2D, frame: Frame, items: readonly Item[]): void {
  const { theme, font } = frame;
  canvas.fillStyle = theme.back;
  canvas.fillRect(0, RULER, LABELS - 1, frame.height - RULER);
  canvas.fillStyle = theme.line;
  canvas.fillRect(LABELS - 1, 0, 1, frame.height);
  canvas.textBaseline = 'middle';
  for (const item of items) {
    const y = item.y - frame.scroll + RULER;
    const group = item.kind === 'group';
    if (group) {
      canvas.fillStyle = theme.band;
      canvas.fillRect(0, y, frame.width, item.height);
    }
    canvas.fillStyle = group ? theme.text : theme.faint;
    const room = Math.floor(((group ? frame.width : LABELS) - 16) / font.char);
    const words = label_of(frame, item);
    const shown = words.length <= room ? words : words.slice(0, room - 1) + '…';
    canvas.fillText(shown, group ? 8 : 12, y + (item.kind === 'track' ? ROW_HEIGHT / 2 : item.height / 2));
    if (item.kind === 'counter') {
      const counter = frame.timeline.counters[item.counter]!;
      canvas.fillText(`0 to ${Number(counter.high.toPrecision(3))}`, 12, y + item.height / 2 + font.size + 1);
    }
  }
}

/** Where a slice is on the canvas; null if its track is not laid out. */
function place_of(frame: Frame, slice: number): { x: number; right: number; y: number } | null {
  const { timeline } = frame;
  const track = timeline.tracks.indexOf(track_of(timeline, slice));
  const middle = middle_of(timeline, frame.layout, track, timeline.depth[slice]!);
  if (middle === null) return null;
  const scale = (frame.width - LABELS) / (frame.to - frame.from);
  const x = LABELS + (timeline.start[slice]! - frame.from) * scale;
  return { x, right: x + timeline.dur[slice]! * scale, y: middle - frame.scroll + RULER };
}

function outline(canvas: CanvasRenderingContext2D, frame: Frame, slice: number, color: string, dashed: boolean): void {
  const place = slice < 0 ? null : place_of(frame, slice);
  if (!place) return;
  canvas.strokeStyle = color;
  canvas.lineWidth = 2;
  canvas.setLineDash(dashed ? [4, 3] : []);
  const left = Math.max(place.x, LABELS - 4);
  const width = Math.max(3, Math.min(place.right, frame.width + 4) - left);
  canvas.strokeRect(left, place.y - ROW_HEIGHT / 2, width, ROW_HEIGHT - 1);
  canvas.setLineDash([]);
}

/** An arrow from the end of what caused something to its start. */
function paint_flows(canvas: CanvasRenderingContext2D, frame: Frame): void {
  if (frame.selected < 0) return;
  canvas.strokeStyle = frame.theme.path;
  canvas.lineWidth = 1.5;
  for (const other of frame.flows) {
    const causes = frame.timeline.flow[frame.selected] === other;
    const from = place_of(frame, causes ? other : frame.selected);
    const to = place_of(frame, causes ? frame.selected : other);
    if (!from || !to) continue;
    const bend = Math.min(60, Math.max(12, Math.abs(to.x - from.x) / 2));
    canvas.beginPath();
    canvas.moveTo(from.x, from.y);
    canvas.bezierCurveTo(from.x + bend, from.y, to.x - bend, to.y, to.x, to.y);
    canvas.moveTo(to.x - 6, to.y - 4);
    canvas.lineTo(to.x, to.y);
    canvas.lineTo(to.x - 6, to.y + 4);
    canvas.stroke();
  }
}

function shade(
  canvas: CanvasRenderingContext2D,
  frame: Frame,
  from: number,
  to: number,
  y: number,
  height: number,
): void {
  const scale = (frame.width - LABELS) / (frame.to - frame.from);
  const left = Math.max(LABELS, LABELS + (from - frame.from) * scale);
  const right = Math.min(frame.width, LABELS + (to - frame.from) * scale);
  if (right < left) return;
  canvas.fillRect(left, y, Math.max(1, right - left), height);
}

function paint_areas(canvas: CanvasRenderingContext2D, frame: Frame): void {
  const { area, mark, theme } = frame;
  if (mark) {
    canvas.globalAlpha = 0.14;
    canvas.fillStyle = theme.path;
    shade(canvas, frame, mark.from, mark.to, RULER, frame.height - RULER);
    canvas.globalAlpha = 1;
  }
  if (!area) return;
  canvas.globalAlpha = 0.2;
  canvas.fillStyle = theme.accent;
  const top = Math.max(RULER, area.top - frame.scroll + RULER);
  shade(canvas, frame, area.from, area.to, top, area.bottom - frame.scroll + RULER - top);
  canvas.globalAlpha = 1;
}

/** Draws everything; gives the number of rectangles' rows, for tests of what was visible. */
export function paint(canvas: CanvasRenderingContext2D, frame: Frame): void {
  const { timeline, layout, theme } = frame;
  canvas.font = `${frame.font.size}px ${frame.font.family}`;
  canvas.fillStyle = theme.back;
  canvas.fillRect(0, 0, frame.width, frame.height);
  paint_grid(canvas, frame);
  const found_color = frame.colors.length;
  const path_color = found_color + 1;
  const boxes = new Batches(path_color + 1);
  const marks = new Batches(path_color + 1);
  const texts: Text[] = [];
  const items: Item[] = [];
  const bottom = frame.scroll + frame.height - RULER;
  for (let i = first_item_below(layout, frame.scroll); i < layout.items.length; ++i) {
    const item = layout.items[i]!;
    if (item.y >= bottom) break;
    items.push(item);
    const y = item.y - frame.scroll + RULER;
    if (item.kind === 'counter') counter_area(canvas, frame, item, y);
    if (item.kind !== 'track') continue;
    const rows = timeline.tracks[item.track]!.rows;
    for (const row of item.collapsed ? rows.slice(0, 1) : rows) {
      const top = y + row.depth * ROW_HEIGHT;
      if (top + ROW_HEIGHT < RULER || top > frame.height) continue;
      row_boxes(frame, row.ids, top, ROW_HEIGHT - 2, -1, boxes, texts);
      if (row.path.length > 0) row_boxes(frame, row.path, top + ROW_HEIGHT - 4, 3, path_color, marks, null);
      const found = frame.found?.get(row);
      if (found && found.length > 0) row_boxes(frame, found, top, 4, found_color, marks, null);
    }
  }
  const colors = [...frame.colors, theme.found, theme.path];
  boxes.paint(canvas, colors);
  marks.paint(canvas, colors);
  paint_texts(canvas, frame, texts);
  paint_areas(canvas, frame);
  outline(canvas, frame, frame.hovered, theme.faint, false);
  outline(canvas, frame, frame.cursor, theme.accent, true);
  outline(canvas, frame, frame.selected, theme.text, false);
  paint_flows(canvas, frame);
  paint_labels(canvas, frame, items);
  paint_ruler(canvas, frame);
}
