// Small curves.

import { s } from "./dom.js";
import { number } from "./words.js";

const WIDTH = 320, HEIGHT = 56;

// Draws values in order, from 0 up; says the last and the highest to those who cannot see it.
export function spark(values, label) {
  const high = Math.max(...values, 1e-9);
  const at = (value, index) => `${(index / Math.max(1, values.length - 1)) * WIDTH},${HEIGHT - 2 - (value / high) * (HEIGHT - 6)}`;
  const line = values.map(at).join(" ");
  return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${label}: now ${number(Math.round(values.at(-1)))}, at most ${number(Math.round(high))}` },
    s("polygon", { points: `0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}` }), s("polyline", { points: line }));
}
