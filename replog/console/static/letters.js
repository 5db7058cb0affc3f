// Dead letters of workers: the reasons, each of them, and the way back.

import { ask, change } from "./ask.js";
import { fill, h, heading, table } from "./dom.js";
import { recordLine } from "./records.js";
import { counted, number } from "./words.js";

export function letters({ root, argument: topic, about, signal, trouble }) {
  if (!topic) return choose(root, signal, trouble);
  const body = h("div", {}, "Reading …"), done = h("p", { role: "status" });
  root.append(heading(topic, h("a", { class: "button", href: `#/topic/${encodeURIComponent(topic)}` }, "Topic"), about.allow_changes && h("button", { class: "danger", onclick: (event) => again(event.target) }, "Send all back …")), done, body);
  read();

  async function read() {
    try {
      const found = await ask("letters", { topic }, signal);
      fill(body, found.reasons.length ? [h("h2", {}, "Reasons"), reasons(found)] : h("p", {}, "No dead letters of workers here."),
        found.rows.length > 0 && [h("h2", {}, "The newest"), h("ol", { class: "records" }, found.rows.map((row) => recordLine(topic, row, { signal, trouble, beside: from(row) })))]);
    } catch (error) { if (error.name !== "AbortError") trouble(error.message); }
  }

  function reasons(found) {
    const rows = found.reasons.map((each) => [each.error, h("a", { href: `#/topic/${encodeURIComponent(each.topic)}` }, each.topic), h("a", { href: `#/group/${encodeURIComponent(each.group)}` }, each.group), number(each.count)]);
    return [table(["error", "came from", "given up by", ">count"], rows, "Reasons"),
      (found.has_more || found.strange_count > 0) && h("p", { class: "quiet" }, `Of the newest ${counted(found.read_count, "record")}${found.strange_count ? `; ${number(found.strange_count)} of them were written by no worker` : ""}.`)];
  }

  function from(row) {
    const { letter } = row;
    if (!letter) return h("p", { class: "quiet" }, "No worker wrote this: nothing says where it came from.");
    const place = h("a", { href: `#/messages/${encodeURIComponent(letter.topic)}?partition=${letter.partition}` }, `${letter.topic}-${letter.partition} offset ${number(letter.offset)}`);
    const button = about.allow_changes && h("button", { class: "danger", onclick: () => back({ topic, partition: row.partition, offset: row.offset }, button) }, "Send this one back");
    return [h("h3", {}, "Why"), h("p", {}, letter.error), h("p", { class: "quiet" }, "From ", place, `, given up by ${letter.group} after ${counted(letter.attempts, "attempt")}.`),
      button && h("div", { class: "row" }, button, h("span", { class: "quiet" }, "“Send all back” would send it once more."))];
  }

  // The first press counts what would go back; the second one sends it.
  async function again(button) {
    if (button.dataset.ready) { delete button.dataset.ready; await back({ topic }, button); button.textContent = "Send all back …"; return; }
    button.disabled = true;
    done.textContent = "Counting …";
    try {
      const { sent } = await change("redrive", { topic, dry_run: true }, signal);
      const total = Object.values(sent).reduce((sum, each) => sum + each, 0);
      done.textContent = total ? `${said(sent)} would go back.` : "All of them were sent back before.";
      if (total) { button.dataset.ready = "true"; button.textContent = `Send ${number(total)} back now`; }
    } catch (error) { if (error.name !== "AbortError") done.textContent = error.message; }
    button.disabled = false;
  }

  async function back(what, button) {
    button.disabled = true;
    try {
      const found = await change("redrive", what, signal);
      done.textContent = `${said(found.sent) || "Nothing"} went back.${found.may_be_more ? " There may be more: press again." : ""} ${found.silence}`;
    } catch (error) { if (error.name !== "AbortError") done.textContent = error.message; }
    button.disabled = "partition" in what;
  }

  function said(sent) { return Object.entries(sent).map(([to, count]) => `${counted(count, "record")} to ${to}`).join(", "); }
}

// Which topics there are to look at: those whose names say so.
async function choose(root, signal, trouble) {
  const list = h("div", {}, "Asking the brokers …");
  root.append(heading("Dead letters"), list);
  try {
    const pages = await Promise.all(["dlq", "dead"].map((search) => ask("topics", { search }, signal)));
    const names = [...new Set(pages.flatMap((page) => page.topics.map((each) => each.name)))].sort();
    fill(list, h("p", { class: "quiet" }, names.length ? "Topics whose names hold “dlq” or “dead”; any other has the button “As dead letters” on its page." : "No topic has “dlq” or “dead” in its name. A topic’s own page has the button “As dead letters”."),
      names.length > 0 && table(["topic"], names.map((name) => [h("a", { href: `#/letters/${encodeURIComponent(name)}` }, name)]), "Topics of dead letters"));
  } catch (error) { if (error.name !== "AbortError") trouble(error.message); }
}
