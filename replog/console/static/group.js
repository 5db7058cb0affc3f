// One group: its members, how far it has come, and its offsets put somewhere else.

import { ask, change, repeat } from "./ask.js";
import { field, fill, h, heading, table } from "./dom.js";
import { spark } from "./draw.js";
import { counted, number, span, time } from "./words.js";

export function group({ root, argument: name, about, signal, trouble }) {
  const body = h("div", {}, "Asking the coordinator …");
  root.append(heading(name), body, about.allow_changes ? resetting(name, signal) : h("p", { class: "quiet" }, "This console only shows; one with --allow-changes puts offsets somewhere else."));
  const look = async () => {
    const found = await ask("group", { group: name }, signal);
    fill(body, tiles(found), h("h2", {}, "Members"), members(found.group), h("h2", {}, "Partitions"), partitions(found));
  };
  repeat(signal, 2, look, trouble);
}

function tiles(found) {
  const lags = [...found.history.map(([, lag]) => lag), found.lag ?? 0];
  const { group } = found;
  const facts = [["state", group.state], ["behind, records", number(found.lag)], ["behind, time", found.lag ? span(found.lag_ms) : "0 s"],
    ["members", number(group.members.length)], ["protocol", [group.group_type, group.assignor].filter(Boolean).join(", ")], ["coordinator", `broker ${group.coordinator_id}`]];
  return h("div", { class: "tiles" }, facts.map(([title, value]) => h("div", { class: "tile" }, h("span", {}, title), h("b", {}, value))),
    lags.length > 1 && h("div", { class: "tile wide" }, h("span", {}, `records behind, in the last ${span(found.now_ms - found.history[0][0])}`), spark(lags, "records behind")));
}

function members(group) {
  if (!group.members.length) return h("p", { class: "quiet" }, "Nobody is in it.");
  return table(["member", "client", "host", ">epoch", "reads"], group.members.map((each) => [
    each.instance_id ? `${each.instance_id} (${each.member_id})` : each.member_id, each.client_id, each.host, number(each.epoch), reads(each.assignment)]), "Members");
}

function reads(assignment) {
  const topics = new Map();
  for (const [topic, partition] of assignment) topics.set(topic, [...(topics.get(topic) || []), partition]);
  return [...topics].map(([topic, all]) => `${topic}: ${all.slice(0, 30).join(", ")}${all.length > 30 ? " …" : ""}`).join("; ") || "nothing";
}

function partitions(found) {
  const rows = found.partitions.map((each) => [
    h("a", { href: `#/messages/${encodeURIComponent(each.topic)}?partition=${each.partition}` }, `${each.topic}-${each.partition}`),
    number(each.committed), number(each.log_end), number(each.lag), each.lag ? span(each.lag_ms) : each.lag === 0 ? "0 s" : "–",
    each.committed_ms ? time(each.committed_ms).slice(0, 19) : "–", each.owner || "nobody"]);
  const more = found.partitions_count - found.partitions.length;
  return rows.length ? [table(["partition", ">committed", ">end", ">behind", ">for", "committed at", "read by"], rows, "Partitions"), more > 0 && h("p", { class: "quiet" }, `and ${counted(more, "partition")} more`)]
    : h("p", { class: "quiet" }, "It has committed nothing, and nobody reads.");
}

// The form that asks where to go, shows what that would change, and does exactly what it has shown.
function resetting(name, signal) {
  const topics = h("input", { placeholder: "all, or: orders  rides:0,2", "aria-label": "Partitions" });
  const where = h("select", { "aria-label": "Where to go", onchange: () => { value.hidden = ["earliest", "latest"].includes(where.value); value.placeholder = HINTS[where.value] || ""; } },
    [["earliest", "the first record kept"], ["latest", "the end"], ["offset", "an offset"], ["shift", "so many on, or back"], ["time", "a time"]].map(([key, text]) => h("option", { value: key }, text)));
  const value = h("input", { hidden: true, "aria-label": "Offset, number or time" });
  const shown = h("div", { role: "status" });
  const preview = async (event) => {
    event.preventDefault();
    try {
      const to = value.hidden ? where.value : `${where.value}:${value.value.trim()}`;
      const found = await ask("reset-preview", { group: name, to, topics: topics.value }, signal);
      const rows = found.changes.map((each) => [`${each.topic}-${each.partition}`, number(each.current), number(each.new), each.difference === null ? "–" : `${each.difference > 0 ? "+" : ""}${number(each.difference)}`, each.note]);
      const commit = h("button", { class: "danger", type: "button", disabled: found.members_count > 0, onclick: () => execute(found.changes, commit) }, `Commit ${counted(rows.length, "offset")}`);
      fill(shown, table(["partition", ">now", ">then", ">difference", "note"], rows, "Preview"), h("div", { class: "row" }, commit,
        h("span", { class: "quiet" }, found.members_count ? `${counted(found.members_count, "member")} must be stopped before: they would go on from their own offsets.` : "Nothing is changed yet.")));
    } catch (error) { if (error.name !== "AbortError") fill(shown, h("p", { class: "wrong" }, error.message)); }
  };
  const execute = async (changes, button) => {
    button.disabled = true;
    try {
      const offsets = changes.map((each) => ({ topic: each.topic, partition: each.partition, offset: each.new }));
      const { partitions_count: count } = await change("reset", { group: name, offsets }, signal);
      fill(shown, h("p", {}, `The group goes on from there in ${counted(count, "partition")}.`));
    } catch (error) { if (error.name !== "AbortError") fill(shown, h("p", { class: "wrong" }, error.message)); }
  };
  return h("section", {}, h("h2", {}, "Go somewhere else"),
    h("form", { class: "controls", onsubmit: preview }, field("Partitions", topics), field("To", where), value, h("button", { type: "submit" }, "Preview")), shown);
}

const HINTS = { offset: "1200", shift: "-100", time: "2026-01-31T13:00:00Z" };
