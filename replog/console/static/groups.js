// The groups, fifty at a time, with how far each is behind.

import { ask, repeat } from "./ask.js";
import { fill, h, heading, table } from "./dom.js";
import { counted, number, span } from "./words.js";

export function groups({ root, query, signal, trouble }) {
  let page = Number(query.get("page")) || 0, word = query.get("search") || "", asked = 0;
  const box = h("input", { type: "search", value: word, placeholder: "Search groups  ( / )", "aria-label": "Search groups", "data-search": true });
  const told = h("p", { class: "quiet", role: "status" }), list = h("div");
  root.append(heading("Groups", box), told, list);
  const look = async () => {
    const own = ++asked;
    const found = await ask("groups", { search: word, page }, signal);
    if (own !== asked) return; // a later question is on its way, or answered
    told.textContent = word ? `${number(found.matching_count)} of ${counted(found.groups_count, "group")}` : counted(found.groups_count, "group");
    const rows = found.groups.map((each) => [
      h("a", { href: `#/group/${encodeURIComponent(each.group_id)}` }, each.group_id),
      each.state, number(each.lag), each.lag ? span(each.lag_ms) : each.lag === 0 ? "0 s" : "–", each.type,
    ]);
    fill(list, found.groups_count ? table(["group", "state", ">behind, records", ">behind, time", "protocol"], rows, "Groups") : h("p", {}, "No groups yet: one begins when somebody joins it."),
      found.pages_count > 1 && h("div", { class: "row" },
        h("button", { disabled: !page, onclick: () => turn(-1) }, "Previous"), h("span", {}, `page ${page + 1} of ${found.pages_count}`),
        h("button", { disabled: page + 1 >= found.pages_count, onclick: () => turn(1) }, "Next")));
  };
  const again = () => look().catch((error) => error.name === "AbortError" || trouble(error.message));
  const turn = (by) => { page += by; again(); };
  box.addEventListener("input", () => { word = box.value; page = 0; again(); });
  repeat(signal, 4, look, trouble);
}
