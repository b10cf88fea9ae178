// One box that explains what is pointed at or focused: the text of the nearest data-tip. Escape puts it away.
import { el } from './dom';

export function install_tips(): void {
  const box = el('div', { id: 'tip', role: 'tooltip', hidden: true });
  document.body.append(box);
  const show = (target: EventTarget | null): void => {
    const owner = target instanceof Element ? target.closest<HTMLElement | SVGElement>('[data-tip]') : null;
    const text = owner?.dataset['tip'];
    if (!owner || !text) {
      box.hidden = true;
      return;
    }
    box.textContent = text;
    box.hidden = false;
    const at = owner.getBoundingClientRect();
    const width = box.offsetWidth;
    const height = box.offsetHeight;
    box.style.left = `${Math.max(4, Math.min(at.left, window.innerWidth - width - 4))}px`;
    box.style.top = `${at.bottom + height + 8 > window.innerHeight && at.top > height + 8 ? at.top - height - 6 : at.bottom + 6}px`;
  };
  document.addEventListener('mouseover', (event) => show(event.target));
  document.addEventListener('focusin', (event) => show(event.target));
  document.addEventListener('focusout', () => (box.hidden = true));
  // What is focused scrolls into view behind the focus: its box goes with it.
  document.addEventListener(
    'scroll',
    () => {
      if (!box.hidden) show(document.activeElement);
    },
    { capture: true, passive: true },
  );
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') box.hidden = true;
  });
}
