// Elements from data. Texts become text nodes and never markup, whatever a record or a name holds.

const SVG = "http://www.w3.org/2000/svg";

// Makes an element; `props` are attributes, listeners (onclick) and properties of inputs; null and false children are left out.
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) set(made, name, value);
  made.append(...kept(children));
  if ((tag === "a" || tag === "button") && !made.dataset.focus) made.dataset.focus = made.getAttribute("href") || made.textContent;
  return made;
}

// Makes an element of a drawing.
export function s(tag, props = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) made.setAttribute(name, value);
  made.append(...kept(children));
  return made;
}

function set(made, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
  else if (name === "value" || name === "checked" || name === "disabled") made[name] = value;
  else made.setAttribute(name, value === true ? "" : value);
}

function kept(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
}

// Puts other children into an element; what had the focus has it again, if it is still there.
export function fill(node, ...children) {
  const active = document.activeElement;
  const key = active && active !== node && node.contains(active) ? active.dataset.focus : null;
  node.replaceChildren(...kept(children));
  if (key) node.querySelector(`[data-focus="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// Makes a table; a heading that begins with ">" stands over numbers. A narrow screen shows each row as a card with the headings in it.
export function table(headings, rows, label) {
  const names = headings.map((each) => each.replace(/^>/, ""));
  const numeric = headings.map((each) => each.startsWith(">"));
  const cell = (content, column) => h("td", { class: numeric[column] ? "number" : null, "data-name": names[column] }, content);
  return h("div", { class: "scroll" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, names.map((name, column) => h("th", { scope: "col", class: numeric[column] ? "number" : null }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}

// Makes a text in which what stands in backticks looks like code.
export function told(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

// Makes a label around a control.
export function field(name, control) {
  return h("label", { class: "field" }, h("span", {}, name), control);
}

export function heading(text, ...beside) {
  return h("div", { class: "heading" }, h("h1", {}, text), beside);
}
