// The metadata quorum: who leads, how far the others are, whose vote counts.

import { ask, repeat } from "./ask.js";
import { fill, h, heading, table } from "./dom.js";
import { number, size, span, time } from "./words.js";

export function quorum({ root, signal, trouble }) {
  const body = h("div", {}, "Asking the quorum …");
  root.append(heading("Quorum"), body);
  const look = async () => {
    const found = await ask("quorum", {}, signal);
    const ms = (value) => (value < 0 ? "–" : `${number(value)} ms`);
    const facts = [["leader", `node ${found.leader_id}`], ["epoch", number(found.leader_epoch)], ["committed up to", number(found.high_watermark)], ["log starts at", number(found.log_start_offset)],
      ["log ends at", number(found.log_end_offset)], ["a commit takes (median, p99)", `${ms(found.commit_ms_p50)}, ${ms(found.commit_ms_p99)}`], ["the election took", ms(found.election_ms)], ["voters", found.is_dynamic ? "in the log" : "in the files"]];
    const rows = found.members.map((each) => [String(each.node_id), standing(each, found), number(each.log_end_offset < 0 ? null : each.log_end_offset),
      number(each.log_end_offset < 0 ? null : Math.max(0, found.log_end_offset - each.log_end_offset)), age(each, found, each.last_fetch_age_ms), age(each, found, each.last_caught_up_age_ms), each.endpoint || "–"]);
    fill(body, h("div", { class: "tiles" }, facts.map(([title, value]) => h("div", { class: "tile" }, h("span", {}, title), h("b", {}, value)))),
      h("h2", {}, "Members"), table(["node", "role", ">log end", ">behind, records", ">heard", ">had everything", "address"], rows, "Members of the quorum"),
      found.snapshots && h("h2", {}, "Snapshots"), found.snapshots && snapshots(found.snapshots),
      found.log_start_offset > 0 && h("p", { class: "quiet" }, `What stood before offset ${number(found.log_start_offset)} is in snapshots.`));
  };
  repeat(signal, 2, look, trouble);
}

// Those of the node that has started this console; the others have their own.
function snapshots(all) {
  return all.length ? table([">up to offset", ">epoch", ">size", "written"], all.map((each) => [number(each.end_offset), number(each.epoch), size(each.size_bytes), time(each.written_ms).slice(0, 19)]), "Snapshots")
    : h("p", { class: "quiet" }, "This node has none yet.");
}

function standing(each, found) {
  const role = each.node_id === found.leader_id ? "leads" : each.is_voter ? "votes" : "follows";
  return h("span", { class: each.node_id === found.leader_id ? "tag good" : "tag" }, role);
}

function age(each, found, ms) {
  if (each.node_id === found.leader_id) return "–";
  return ms < 0 ? "never" : ms < 1000 ? "just now" : `${span(ms)} ago`;
}
