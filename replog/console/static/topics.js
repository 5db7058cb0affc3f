// The topics, a hundred at a time: the server searches and pages, so a thousand cost no more than a hundred.

import { ask, repeat } from "./ask.js";
import { fill, h, heading, table } from "./dom.js";
import { counted, number, rate, retention, size } from "./words.js";

export function topics({ root, query, signal, trouble }) {
  let page = Number(query.get("page")) || 0, word = query.get("search") || "", asked = 0;
  const box = h("input", { type: "search", value: word, placeholder: "Search topics  ( / )", "aria-label": "Search topics", "data-search": true, "data-focus": "search" });
  const list = h("div"), told = h("p", { class: "quiet", role: "status" }), ends = new Map();
  root.append(heading("Topics", box), told, list);

  const look = async () => {
    const own = ++asked;
    const found = await ask("topics", { search: word, page }, signal);
    if (own !== asked) return; // a later question is on its way, or answered
    if (page && page >= found.pages_count) { page = Math.max(0, found.pages_count - 1); return look(); }
    told.textContent = word ? `${number(found.matching_count)} of ${counted(found.topics_count, "topic")}` : counted(found.topics_count, "topic");
    fill(list, found.topics_count ? rows(found) : empty(), pager(found));
  };
  const rows = (found) => table([">", "topic", ">records/s", ">size", "kept", ">partitions", ">replicas", "state"].slice(1), found.topics.map((each) => [
    h("a", { href: `#/topic/${encodeURIComponent(each.name)}` }, each.name),
    rate(measured(each, found.now_ms)),
    size(each.size_bytes),
    retention(each.configs),
    number(each.partitions_count),
    number(each.replicas_count),
    state(each),
  ]), "Topics");
  const measured = (each, now) => {
    const [noted] = each.noted, last = ends.get(each.name) || (noted && { now: noted[0], end: noted[1], rate: null });
    if (each.end === null) return null;
    if (last && now - last.now < 1000) return last.rate;
    const found = last ? Math.max(0, each.end - last.end) / ((now - last.now) / 1000) : null;
    if (ends.size > 1000) ends.clear();
    ends.set(each.name, { end: each.end, now, rate: found });
    return found;
  };
  const pager = (found) => found.pages_count > 1 && h("div", { class: "row" },
    h("button", { disabled: !page, onclick: () => turn(-1) }, "Previous"),
    h("span", {}, `page ${page + 1} of ${found.pages_count}`),
    h("button", { disabled: page + 1 >= found.pages_count, onclick: () => turn(1) }, "Next"));
  const turn = (by) => { page += by; again(); };
  const again = () => {
    history.replaceState(null, "", `#/topics?${new URLSearchParams({ ...(word && { search: word }), ...(page && { page }) })}`);
    look().catch((error) => error.name === "AbortError" || trouble(error.message));
  };
  box.addEventListener("input", () => { word = box.value; page = 0; again(); });
  repeat(signal, 3, look, trouble);
}

function empty() {
  return h("p", {}, "No topics yet. ", h("code", {}, "replog topics create NAME"), " makes one.");
}

function state(each) {
  if (each.unavailable_count) return h("span", { class: "tag bad" }, `${each.unavailable_count} without a leader`);
  if (each.under_replicated_count) return h("span", { class: "tag warn" }, `${each.under_replicated_count} under-replicated`);
  return h("span", { class: "tag good" }, "in sync");
}
