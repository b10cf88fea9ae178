// Mouse, wheel and keys of the timeline.
import { LABELS, RULER } from './draw';
import type { View } from './view';

export interface Actions {
  select: (slice: number) => void;
  move_cursor: (slice: number) => void;
  hover: (slice: number, x: number, y: number) => void;
  area: (finished: boolean) => void;
  fit: () => void;
  mark: () => void;
  search: () => void;
  next: (forward: boolean) => void;
  visible: () => void;
  drop: () => void;
  help: () => void;
}

const DRAG_MIN = 4; // px
const ZOOM_STEP = 0.85; // of one press
const PAN_STEP = 0.08;
const ZOOM_PER_S = 6; // e-fold, while a key is held
const PAN_PER_S = 1.2; // of what is shown

/** W, A, S and D work at once, and on while they are held. */
class Held {
  private readonly keys = new Set<string>();
  private last = 0;
  private frame = 0;
  constructor(private readonly view: View) {}

  press(key: string): void {
    if (this.keys.has(key)) return;
    this.keys.add(key);
    if (key === 'w') this.view.zoom(ZOOM_STEP);
    if (key === 's') this.view.zoom(1 / ZOOM_STEP);
    if (key === 'a') this.view.pan(-PAN_STEP);
    if (key === 'd') this.view.pan(PAN_STEP);
    if (this.frame !== 0) return;
    this.last = performance.now();
    this.frame = requestAnimationFrame(this.tick);
  }
  release(key: string): void {
    this.keys.delete(key);
  }
  clear(): void {
    this.keys.clear();
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }
  private readonly tick = (now: number): void => {
    this.frame = 0;
    if (this.keys.size === 0) return;
    const seconds = Math.min(0.1, Math.max(0, now - this.last) / 1000);
    this.last = now;
    const zoom = (this.keys.has('s') ? 1 : 0) - (this.keys.has('w') ? 1 : 0);
    const pan = (this.keys.has('d') ? 1 : 0) - (this.keys.has('a') ? 1 : 0);
    if (zoom !== 0) this.view.zoom(Math.exp(zoom * ZOOM_PER_S * seconds * 0.5));
    if (pan !== 0) this.view.pan(pan * PAN_PER_S * seconds);
    this.frame = requestAnimationFrame(this.tick);
  };
}

export function listen(box: HTMLElement, view: View, actions: Actions): () => void {
  const held = new Held(view);
  const signal = new AbortController();
  const on = <K extends keyof HTMLElementEventMap>(type: K, what: (event: HTMLElementEventMap[K]) => void): void =>
    box.addEventListener(type, what, { signal: signal.signal, passive: false });
  listen_to_pointer(on, box, view, actions);
  on('wheel', (event) => wheel(event, view));
  on('keyup', (event) => held.release(event.key.toLowerCase()));
  on('blur', () => held.clear());
  on('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key(event, view, actions, held)) event.preventDefault();
  });
  return () => {
    held.clear();
    signal.abort();
  };
}

function wheel(event: WheelEvent, view: View): void {
  const px = event.deltaMode === 1 ? 20 : 1;
  if (event.ctrlKey || event.metaKey) {
    const bounds = view.canvas.getBoundingClientRect();
    view.zoom(Math.exp(event.deltaY * px * 0.003), view.time_at(Math.max(LABELS, event.clientX - bounds.left)));
    event.preventDefault();
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    view.pan(((event.deltaX || event.deltaY) * px) / Math.max(1, view.canvas.clientWidth));
    event.preventDefault();
  } else if (view.scroll_by(event.deltaY * px)) {
    event.preventDefault(); // at the ends the page scrolls
  }
}

/** Whether the key means something here. */
function key(event: KeyboardEvent, view: View, actions: Actions, held: Held): boolean {
  const arrows: Record<string, () => number> = {
    ArrowLeft: () => view.beside(-1),
    ArrowRight: () => view.beside(1),
    ArrowUp: () => view.in_next_row(-1),
    ArrowDown: () => view.in_next_row(1),
  };
  const arrow = arrows[event.key];
  if (arrow) {
    actions.move_cursor(arrow());
    return true;
  }
  const lower = event.key.toLowerCase();
  if ('wasd'.includes(lower) && lower.length === 1) {
    held.press(lower);
    return true;
  }
  const others: Record<string, () => void> = {
    enter: () => view.cursor >= 0 && actions.select(view.cursor),
    f: actions.fit,
    m: actions.mark,
    '/': actions.search,
    n: () => actions.next(!event.shiftKey),
    r: actions.visible,
    c: () => view.cursor >= 0 && view.toggle('track', view.row_of(view.cursor).track),
    escape: actions.drop,
    '?': actions.help,
  };
  const other = others[lower];
  if (!other) return false;
  other();
  return true;
}

type On = <K extends keyof HTMLElementEventMap>(type: K, what: (event: HTMLElementEventMap[K]) => void) => void;

function listen_to_pointer(on: On, box: HTMLElement, view: View, actions: Actions): void {
  let down: { x: number; y: number; time: number; top: number; from: number; to: number; shift: boolean } | null = null;
  let moved = false;
  const place = (event: PointerEvent): { x: number; y: number } => {
    const bounds = view.canvas.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  };
  on('pointerdown', (event) => {
    if (event.button !== 0) return;
    const { x, y } = place(event);
    box.focus({ preventScroll: true });
    moved = false;
    if (x < LABELS || (y > RULER && view.item_at(y)?.kind === 'group')) {
      toggle(view, y);
      return;
    }
    down = { x, y, time: view.time_at(x), top: view.y_of(y), from: view.from, to: view.to, shift: event.shiftKey };
    box.setPointerCapture(event.pointerId);
  });
  on('pointermove', (event) => {
    const { x, y } = place(event);
    if (!down) {
      actions.hover(view.slice_at(x, y), x, y);
      return;
    }
    if (!moved && Math.abs(x - down.x) < DRAG_MIN && Math.abs(y - down.y) < DRAG_MIN) return;
    moved = true;
    if (down.shift) {
      const by = ((down.x - x) / Math.max(1, view.canvas.clientWidth - LABELS)) * (down.to - down.from);
      view.show(down.from + by, down.to + by);
      return;
    }
    const now = Math.max(0, Math.min(view.time_at(Math.max(LABELS, x)), view.timeline.duration));
    const ruler = down.y < RULER; // over all tracks
    const height = ruler ? view.layout.height : view.y_of(y);
    view.area = {
      from: Math.max(0, Math.min(down.time, now)),
      to: Math.max(down.time, now),
      top: ruler ? 0 : Math.min(down.top, height),
      bottom: Math.max(ruler ? 0 : down.top, height),
    };
    actions.area(false);
  });
  on('pointerup', (event) => {
    const { x, y } = place(event);
    if (down && !moved) actions.select(view.slice_at(x, y));
    if (down && moved && !down.shift) actions.area(true);
    down = null;
  });
  on('pointerleave', () => actions.hover(-1, 0, 0));
}

function toggle(view: View, y: number): void {
  const item = view.item_at(y);
  if (item?.kind === 'group') view.toggle('group', item.group);
  if (item?.kind === 'track') view.toggle('track', item.track);
}
