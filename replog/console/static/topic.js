// One topic: its partitions, the groups that read it, and what is set for it.

import { ask, repeat } from "./ask.js";
import { fill, h, heading, table } from "./dom.js";
import { spark } from "./draw.js";
import { counted, number, rate, retention, size, span } from "./words.js";

const SAMPLES = 120;

export function topic({ root, argument: name, about, signal, trouble }) {
  const body = h("div", {}, "Asking the brokers …"), samples = [];
  root.append(heading(name,
    h("a", { class: "button", href: `#/messages/${encodeURIComponent(name)}` }, "Messages"),
    h("a", { class: "button", href: `#/letters/${encodeURIComponent(name)}` }, "As dead letters")), body);
  const look = async () => {
    const found = await ask("topic", { topic: name }, signal);
    const end = total(found.partitions, "end");
    if (end !== null) samples.push({ at: found.now_ms, end });
    if (samples.length > SAMPLES) samples.shift();
    const noted = found.history.map(([at, end]) => ({ at, end }));
    fill(body, summary(found, rates(noted.length ? [...noted.filter((each) => found.now_ms - each.at >= 1000), ...samples.slice(-1)] : samples)), h("h2", {}, "Groups"), groups(found), h("h2", {}, "Partitions"), partitions(found, about), configs(found));
  };
  repeat(signal, 3, look, trouble);
}

// Records a second between each sample and the one before it, with the time from the first one to the last, in milliseconds.
function rates(samples) {
  const values = samples.slice(1).map((each, index) => Math.max(0, each.end - samples[index].end) / Math.max(0.001, (each.at - samples[index].at) / 1000));
  return { values, time_ms: samples.length ? samples.at(-1).at - samples[0].at : 0 };
}

function total(partitions, key) {
  return partitions.some((each) => each[key] === null) ? null : partitions.reduce((sum, each) => sum + each[key], 0);
}

function summary(found, { values: rates, time_ms }) {
  const configured = Object.fromEntries(found.configs.map((each) => [each.name, each.value]));
  const start = total(found.partitions, "start"), end = total(found.partitions, "end");
  const facts = [
    ["records a second", rate(rates.at(-1))],
    ["offsets kept", start === null || end === null ? "–" : number(end - start)],
    ["size of one replica", size(total(found.partitions, "size_bytes"))],
    ["kept", retention(configured)],
    ["partitions", number(found.partitions_count)],
  ];
  return h("div", { class: "tiles" },
    facts.map(([title, value]) => h("div", { class: "tile" }, h("span", {}, title), h("b", {}, value))),
    rates.length > 1 && h("div", { class: "tile wide" }, h("span", {}, `records a second, in the last ${span(time_ms)}`), spark(rates, "records a second")));
}

function groups(found) {
  if (found.problem) return h("p", { class: "quiet" }, `Not known: ${found.problem}`);
  if (!found.groups.length) return h("p", { class: "quiet" }, "No group has committed anything of it, or reads it.");
  const rows = found.groups.map((each) => [
    h("a", { href: `#/group/${encodeURIComponent(each.group_id)}` }, each.group_id),
    number(each.lag), each.lag ? span(each.lag_ms) : "0 s", number(each.members_count), number(each.partitions_count),
  ]);
  const left = found.groups_count - found.looked_at_count;
  return [table(["group", ">behind, records", ">behind, time", ">members", ">partitions"], rows, "Groups"),
    left > 0 && h("p", { class: "quiet" }, `${counted(left, "group")} more in the cluster ${left === 1 ? "was" : "were"} not asked for.`)];
}

function partitions(found, about) {
  const rows = found.partitions.map((each) => [
    about.has_timeline ? h("a", { href: `#/timeline/${encodeURIComponent(found.name)}?partition=${each.partition}` }, String(each.partition)) : String(each.partition),
    each.leader < 0 ? h("span", { class: "tag bad" }, "none") : String(each.leader),
    number(each.leader_epoch),
    replicas(each),
    each.elr.join(", ") || "–",
    number(each.start), number(each.end), size(each.size_bytes),
  ]);
  const more = found.partitions_count - found.partitions.length;
  return [table(["partition", "leader", ">epoch", "replicas", "eligible beside", ">start", ">end", ">size"], rows, "Partitions"),
    more > 0 && h("p", { class: "quiet" }, `and ${counted(more, "partition")} more`)];
}

function replicas(each) {
  return each.replicas.map((id, index) => [index ? ", " : "",
    each.isr.includes(id) ? String(id) : h("span", { class: "tag warn", title: "not in sync" }, `${id} out of sync`)]);
}

function configs(found) {
  const own = new Set(found.own_configs);
  const rows = found.configs.map((each) => [each.name, each.value ?? "–", own.has(each.name) ? "this topic" : "default"]);
  return h("details", {}, h("summary", {}, `Configuration: ${own.size ? `${own.size} of its own` : "nothing of its own"}`),
    table(["key", "value", "from"], rows, "Configuration"));
}
