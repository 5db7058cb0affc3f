// A list of records: a line each, that opens to show all of it.

import { ask } from "./ask.js";
import { fill, h } from "./dom.js";
import { brief, unfolded } from "./unfold.js";
import { time } from "./words.js";

// Makes the line of a record of a topic.
export function recordLine(topic, record, { signal, trouble, beside = null }) {
  const body = h("div", { class: "record-body", hidden: true });
  const line = h("button", { class: "record-line", "aria-expanded": "false", "data-focus": `${record.partition}/${record.offset}`, onclick: () => toggle() },
    h("span", { class: "place" }, `${record.partition} / ${record.offset}`),
    h("span", { class: "when" }, time(record.timestamp)),
    h("span", { class: "key" }, brief(record.key)),
    h("span", { class: "value" }, brief(record.value)));
  const toggle = async () => {
    const opens = body.hidden;
    body.hidden = !opens;
    line.setAttribute("aria-expanded", String(opens));
    if (!opens || body.childElementCount) return;
    fill(body, "Reading …");
    try {
      const whole = await ask("message", { topic, partition: record.partition, offset: record.offset }, signal);
      fill(body, beside, shown(whole));
    } catch (error) {
      if (error.name !== "AbortError") fill(body, error.message);
    }
  };
  return h("li", { class: "record" }, line, body);

  function shown(whole) {
    return [
      h("h3", {}, "Key"), unfolded(whole.key),
      h("h3", {}, "Value"), unfolded(whole.value),
      whole.headers.length > 0 && [h("h3", {}, "Headers"), h("dl", { class: "facts" }, whole.headers.map(([name, data]) => [h("dt", {}, name), h("dd", {}, unfolded(data))]))],
      h("div", { class: "row" }, whole.as_python ? [copy("Copy as Python", whole.as_python), copy("Copy as replog produce", whole.as_command)]
        : h("span", { class: "quiet" }, "too large to be copied as a line")),
    ];
  }

  function copy(name, text) {
    return h("button", { onclick: async (event) => {
      try { await navigator.clipboard.writeText(text); event.target.textContent = "Copied"; } catch { trouble(text); }
      setTimeout(() => { event.target.textContent = name; }, 1500);
    } }, name);
  }
}
