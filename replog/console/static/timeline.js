// The timeline of a partition: who led, who was in sync, and why that changed; to be scrubbed through.

import { ask } from "./ask.js";
import { field, fill, h, heading, table } from "./dom.js";
import { counted, number, span, time } from "./words.js";

export function timeline({ root, argument: topic, query, about, signal, trouble }) {
  root.append(heading("Timeline"));
  if (!about.has_timeline) {
    root.append(h("p", {}, "There is no metadata log to read here. A broker of replog that starts the console (", h("code", {}, "console.listener"), ") shows it, and so does ", h("code", {}, "replog console --metadata-dir DIR"), " on the machine of a node. Apache Kafka’s is not read."));
    return;
  }
  const name = h("input", { value: topic, "aria-label": "Topic", placeholder: "topic", "data-search": true, list: "names" });
  const names = h("datalist", { id: "names" });
  const partition = h("input", { value: query.get("partition") || "0", inputmode: "numeric", size: 5, "aria-label": "Partition" });
  const body = h("div", {}, topic ? "Reading the metadata log …" : "");
  root.append(h("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); location.hash = `#/timeline/${encodeURIComponent(name.value.trim())}?partition=${partition.value.trim()}`; } },
    field("Topic", name), names, field("Partition", partition), h("button", { type: "submit" }, "Show")), body);
  name.addEventListener("input", () => ask("topics", { search: name.value }, signal).then((found) => fill(names, found.topics.slice(0, 20).map((each) => h("option", { value: each.name }))), () => {}));
  if (topic) ask("timeline", { topic, partition: partition.value }, signal).then((found) => show(body, found), (error) => { if (error.name !== "AbortError") { fill(body); trouble(error.message); } });
}

function show(body, found) {
  const { moments } = found;
  if (!moments.length) return fill(body, h("p", {}, "Nothing is told of it any more."));
  const stage = h("div", { class: "stage" });
  const at = h("input", { type: "range", min: 0, max: moments.length - 1, value: String(moments.length - 1), "aria-label": "Moment", oninput: () => go(Number(at.value)) });
  const offset = h("input", { inputmode: "numeric", size: 9, "aria-label": "Metadata offset", onchange: () => go(index(moments, Number(offset.value))) });
  const rows = table([">offset", "time", "leader", ">epoch", "in sync", "what", "why"].map((each, column) => (column ? each : "offset")), moments.map((each, position) => [
    h("button", { class: "plain", onclick: () => { go(position); stage.scrollIntoView({ block: "nearest" }); } }, each.offset < 0 ? "before" : number(each.offset)),
    each.timestamp < 0 ? "–" : time(each.timestamp), each.state ? leader(each.state) : "–", number(each.state?.leader_epoch), each.state?.isr.join(", ") || "none", each.what.join("; ") || "–", each.why.join("; ") || "–"]).reverse(), "Changes");
  const lines = [...rows.querySelectorAll("tbody tr")].reverse();
  function go(position) {
    at.value = String(position);
    const moment = moments[position], next = moments[position + 1];
    lines.forEach((line, each) => line.toggleAttribute("aria-current", each === position));
    offset.value = String(Math.max(0, moment.offset));
    at.setAttribute("aria-valuetext", `${moment.offset < 0 ? "before the log" : `offset ${moment.offset}`}: ${moment.what.join("; ")}`);
    fill(stage, replicas(moment), h("p", {}, h("b", {}, moment.what.join("; ") || "–"), moment.why.length > 0 && [" because ", moment.why.join("; ")]),
      h("p", { class: "quiet" }, [moment.timestamp < 0 ? "" : time(moment.timestamp), next && next.timestamp >= 0 && moment.timestamp >= 0 ? `for ${span(Math.max(1, next.timestamp - moment.timestamp))}, up to offset ${number(next.offset)}` : next ? "" : "up to now"].filter(Boolean).join(", ")));
  }
  fill(body, bands(moments, go), h("div", { class: "row" }, h("button", { onclick: () => go(Math.max(0, Number(at.value) - 1)) }, "Earlier"), at, h("button", { onclick: () => go(Math.min(moments.length - 1, Number(at.value) + 1)) }, "Later"), field("Offset", offset)),
    stage, h("h2", {}, counted(moments.length, "moment")), rows,
    h("p", { class: "quiet" }, [`Metadata offsets ${number(found.start_offset)} to ${number(found.end_offset)} of this node’s log; the last of them need not be committed.`, found.left_out_count && `${number(found.left_out_count)} earlier changes are left out.`, found.is_late && "The log is long: what came later was not read."].filter(Boolean).join(" ")));
  go(moments.length - 1);
}

// A line for each replica over all moments: led, in sync, eligible, out.
function bands(moments, go) {
  const brokers = [...new Set(moments.flatMap((each) => each.state?.replicas || []))].sort((a, b) => a - b);
  const shown = moments.slice(-200), first = moments.length - shown.length;
  return h("div", { class: "bands", "aria-hidden": "true" }, brokers.map((broker) => h("div", { class: "band" }, h("span", {}, `broker ${broker}`),
    h("div", {}, shown.map((each, position) => h("i", { class: role(each, broker), title: `${role(each, broker)}: ${each.what.join("; ")}`, onclick: () => go(first + position) }))))));
}

function role(moment, broker) {
  const { state } = moment;
  if (!state || !state.replicas.includes(broker)) return "absent";
  if (state.leader === broker) return "leads";
  if (state.isr.includes(broker)) return "synced";
  if (state.elr.includes(broker)) return "eligible";
  return "out";
}

const ROLES = { leads: "leads", synced: "in sync", eligible: "eligible", out: "out of sync", absent: "no replica" };

function replicas(moment) {
  const { state } = moment;
  if (!state) return h("p", {}, "There is no such partition then.");
  return h("div", { class: "tiles" }, state.replicas.map((broker) => h("div", { class: `tile replica ${role(moment, broker)}` }, h("span", {}, `broker ${broker}`), h("b", {}, ROLES[role(moment, broker)]), moment.fenced.includes(broker) && h("span", { class: "tag bad" }, "fenced"))),
    h("div", { class: "tile" }, h("span", {}, "leader epoch"), h("b", {}, number(state.leader_epoch))), h("div", { class: "tile" }, h("span", {}, "partition epoch"), h("b", {}, number(state.partition_epoch))));
}

function leader(state) { return state.leader < 0 ? h("span", { class: "tag bad" }, "nobody") : `broker ${state.leader}`; }

function index(moments, offset) {
  let found = 0;
  moments.forEach((each, position) => { if (each.offset <= offset) found = position; });
  return found;
}
