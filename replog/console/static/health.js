// How the cluster is, in a sentence; then its brokers, and what is to be known of quorum, partitions, moves and groups.

import { ask, repeat } from "./ask.js";
import { fill, h, heading, table, told } from "./dom.js";
import { number, size } from "./words.js";

export function health({ root, signal }) {
  const said = h("p", { class: "sentence", role: "status" }, "Asking the brokers …");
  const rest = h("div");
  root.append(heading("Health"), said, rest);
  let before = "";
  const look = async () => {
    const found = await ask("health", {}, signal);
    const now = JSON.stringify(found);
    if (now === before) return;
    before = now;
    said.className = `sentence ${found.is_healthy ? "good" : "bad"}`;
    fill(said, told(found.sentence));
    fill(rest, facts(found.facts), brokers(found.brokers));
  };
  repeat(signal, 3, look, (text) => {
    if (text) { said.className = "sentence bad"; fill(said, told(`The brokers do not answer: ${text}`)); before = ""; }
  });
}

function facts(all) {
  return h("dl", { class: "facts" }, all.map(([name, text]) => [h("dt", {}, name), h("dd", {}, told(text))]));
}

function brokers(all) {
  const rows = all.map((each) => [
    String(each.broker_id),
    h("span", { class: each.is_up ? "tag good" : "tag bad" }, [each.state, each.is_controller && "controller", each.is_drained && "drained"].filter(Boolean).join(", ")),
    number(each.leaders_count),
    number(each.replicas_count - each.leaders_count),
    size(each.rss_bytes),
    each.address,
    each.rack || "–",
    each.version || "–",
  ]);
  return [h("h2", {}, "Brokers"), table(["broker", "state", ">leads", ">follows", ">memory", "address", "rack", "version"], rows, "Brokers")];
}
