// Keys, values and headers: text, JSON unfolded, or bytes.

import { h } from "./dom.js";
import { counted, size } from "./words.js";

const CHILDREN = 200;
const OPEN_DEPTH = 2;

// Says the beginning of some data in a line.
export function brief(data) {
  if (!data) return h("i", { class: "quiet" }, "null");
  if (data.base64 !== undefined) return h("span", { class: "quiet" }, `${counted(data.size, "byte")}, no text`);
  return data.text ? data.text.slice(0, 300) : h("i", { class: "quiet" }, "empty");
}

// Shows data as a whole: JSON as a tree that folds, bytes in hexadecimal, else the text.
export function unfolded(data) {
  if (!data) return h("p", { class: "quiet" }, "null");
  const cut = data.is_cut && h("p", { class: "quiet" }, `the beginning of ${size(data.size)}`);
  if (data.base64 !== undefined) return [cut, h("pre", {}, hexadecimal(atob(data.base64)))];
  const parsed = data.is_cut ? undefined : json(data.text);
  if (parsed === undefined) return [cut, h("pre", {}, data.text)];
  return h("div", { class: "tree" }, tree(parsed, 0));
}

function json(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  // a number that JavaScript would round is shown as it was written
  try { return JSON.parse(text, (_key, value, context) => (typeof value === "number" && context && String(value) !== context.source ? new Exact(context.source) : value)); } catch { return undefined; }
}

class Exact { constructor(text) { this.text = text; } }

function tree(value, depth) {
  if (value === null || typeof value !== "object" || value instanceof Exact) return leaf(value);
  const entries = Object.entries(value), isList = Array.isArray(value);
  if (!entries.length) return h("span", {}, isList ? "[]" : "{}");
  const children = () => h("ul", {}, entries.slice(0, CHILDREN).map(([name, child]) => h("li", {}, h("span", { class: "name" }, `${name}: `), tree(child, depth + 1))),
    entries.length > CHILDREN && h("li", { class: "quiet" }, `and ${entries.length - CHILDREN} more`));
  const made = h("details", { open: depth < OPEN_DEPTH }, h("summary", {}, isList ? `[${counted(entries.length, "item")}]` : `{${counted(entries.length, "field")}}`));
  const grow = () => { if (made.open && made.childElementCount === 1) made.append(children()); };
  made.addEventListener("toggle", grow);
  grow();
  return made;
}

function leaf(value) {
  if (value instanceof Exact) return h("span", { class: "leaf number" }, value.text);
  return h("span", { class: `leaf ${value === null ? "null" : typeof value}` }, typeof value === "string" ? JSON.stringify(value) : String(value));
}

function hexadecimal(bytes) {
  const lines = [];
  for (let start = 0; start < Math.min(bytes.length, 4096); start += 16) {
    const part = [...bytes.slice(start, start + 16)].map((each) => each.charCodeAt(0));
    const shown = part.map((code) => (code >= 32 && code < 127 ? String.fromCharCode(code) : "."));
    lines.push(`${start.toString(16).padStart(6, "0")}  ${part.map((code) => code.toString(16).padStart(2, "0")).join(" ").padEnd(47)}  ${shown.join("")}`);
  }
  if (bytes.length > 4096) lines.push(`and ${bytes.length - 4096} bytes more`);
  return lines.join("\n");
}
