// Dark and light: as the system has it, until the reader chooses. What was chosen is kept where the browser lets a page that
// was opened from a disk keep anything.
import { el } from './dom';
import { redraw_plots } from './plot';

type Theme = 'system' | 'light' | 'dark';
const kKey = 'llmprof-theme';
const system_is_dark = matchMedia('(prefers-color-scheme: dark)');

function kept(): Theme {
  try {
    const theme = localStorage.getItem(kKey);
    return theme === 'light' || theme === 'dark' ? theme : 'system';
  } catch {
    return 'system';
  }
}

function apply(theme: Theme): void {
  const of_system = system_is_dark.matches ? 'dark' : 'light';
  document.documentElement.dataset['theme'] = theme === 'system' ? of_system : theme;
  redraw_plots();
}

export function theme_switch(): HTMLElement {
  const select = el(
    'select',
    {},
    ...(['system', 'light', 'dark'] as const).map((theme) => el('option', { value: theme }, theme)),
  );
  select.value = kept();
  apply(kept());
  select.addEventListener('input', () => {
    apply(select.value as Theme);
    try {
      localStorage.setItem(kKey, select.value);
    } catch {
      // It holds until the page is closed.
    }
  });
  system_is_dark.addEventListener('change', () => apply(select.value as Theme));
  return el('label', { class: 'theme' }, 'theme ', select);
}
