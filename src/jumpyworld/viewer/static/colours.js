// Colours: the theme's, read from the style sheet, and one scale for values.

const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129],
  [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const dark = matchMedia("(prefers-color-scheme: dark)");
const names = ["ink", "soft", "wall", "wall-edge", "floor", "grid", "accent", "start", "goal", "plan", "trail",
  "sample", "plus", "minus", "base", "card", "line"];
export const theme = {};

function read() {
  const style = getComputedStyle(document.documentElement);
  for (const name of names) theme[name] = style.getPropertyValue(`--${name}`).trim();
}
read();
dark.addEventListener("change", read);

// A share from 0 to 1; high values stand out from the floor in either theme.
export function scale(share, alpha = 1) {
  const x = Math.min(1, Math.max(0, dark.matches ? share : 0.93 * (1 - share))) * (VIRIDIS.length - 1);
  const i = Math.min(VIRIDIS.length - 2, Math.floor(x));
  const rgb = VIRIDIS[i].map((low, c) => Math.round(low + (VIRIDIS[i + 1][c] - low) * (x - i)));
  return `rgb(${rgb.join(" ")} / ${alpha})`;
}

// Cubes have OGBench's own colours.
export const CUBES = ["#f54254", "#598ce8", "#e0921a", "#0a9c2c"];

// The range of the values that colours stand for.
export function rangeOf(values) {
  const known = values.filter((v) => v !== null);
  if (!known.length) return [0, 1];
  const low = Math.min(...known), high = Math.max(...known);
  return high > low ? [low, high] : [low, low + 1];
}
export const shareOf = (value, [low, high]) => (value === null ? 0 : (value - low) / (high - low));
