// The records of a topic: the newest, or from a place on; a tail; a search on the server.

import { AskError, ask, lines } from "./ask.js";
import { field, fill, h, heading } from "./dom.js";
import { recordLine } from "./records.js";
import { counted, number } from "./words.js";

const ROWS = 1000; // of a tail or a search that stay on the page

export function messages({ root, argument: topic, query, signal, trouble }) {
  const told = h("p", { class: "quiet", role: "status" }), list = h("ol", { class: "records" }), more = h("div", { class: "row" });
  const bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress of the search" });
  const controls = form();
  let running = null;
  root.append(heading("Messages", h("a", { class: "button", href: `#/topic/${encodeURIComponent(topic)}` }, topic)), controls.node, told, bar, list, more);
  root.parentElement.addEventListener("escape", (event) => { if (running) { event.preventDefault(); stop(); } }, { signal });
  ask("topic", { topic }, signal).then((found) => controls.partitions(found.partitions_count), () => {});
  read();

  // ---- one thing at a time: it ends what went on before

  function begin() {
    running?.abort();
    const own = running = new AbortController();
    signal.addEventListener("abort", () => own.abort(), { once: true });
    trouble(""); bar.hidden = true; fill(more);
    return own;
  }

  async function doing(work) {
    const own = begin();
    controls.busy(true);
    try { await work(own.signal); } catch (error) {
      if (error.name !== "AbortError") { trouble(error.message); if (!(error instanceof AskError)) console.error(error); }
    } finally {
      if (running === own) { running = null; bar.hidden = true; controls.busy(false); }
    }
  }

  function stop() { running?.abort(); running = null; bar.hidden = true; controls.busy(false); told.textContent += " Stopped."; }

  function line(record) { return recordLine(topic, record, { signal, trouble }); }

  function read(page = {}) {
    return doing(async (own) => {
      if (!Object.keys(page).length) { told.textContent = "Reading …"; fill(list); }
      const found = await ask("messages", { topic, ...controls.place(), ...page }, own);
      list.append(...found.rows.map(line));
      const count = list.childElementCount, at = Object.entries(found.bounds).map((pair) => pair.join(":")).join(",");
      told.textContent = [count ? counted(count, "record") : "No records here.", leaderless(found.leaderless), found.is_late && "Not all could be read in time."].filter(Boolean).join(" · ");
      const isNewest = controls.isNewest();
      fill(more, found.has_more && h("button", { onclick: () => read(isNewest ? { before: at } : { at }) }, isNewest ? "Older" : "Further"));
    });
  }

  function tail() {
    return doing(async (own) => {
      fill(list);
      let seen = 0, passed = 0;
      for await (const line_ of lines("tail", { topic, partition: controls.partition() }, own)) {
        if (line_.ended) { told.textContent += " Ended after ten minutes; press Tail to go on."; return; }
        if (line_.begun) { told.textContent = "Waiting for records … Esc ends it."; continue; }
        seen += line_.records.length; passed += line_.passed_over;
        if (!line_.records.length) continue;
        list.prepend(...line_.records.reverse().map(line));
        while (list.childElementCount > ROWS) list.lastElementChild.remove();
        told.textContent = `${counted(seen + passed, "record")} came${passed ? `, ${number(passed)} of them too fast to be shown` : ""}. Esc ends it.`;
      }
    });
  }

  function search() {
    const wanted = controls.search();
    if (!wanted.word) return read();
    return doing(async (own) => {
      fill(list);
      bar.hidden = false; bar.removeAttribute("value");
      told.textContent = "Searching … Esc ends it.";
      const { from } = controls.place();
      for await (const line_ of lines("search", { topic, partition: controls.partition(), from: from || "earliest", ...wanted }, own)) {
        if (line_.record) list.append(line(line_.record));
        if (line_.progress) {
          const { done, total, read: seen, matches } = line_.progress;
          bar.value = total ? done / total : 1;
          told.textContent = `${counted(matches, "match").replace("matchs", "matches")} in ${counted(seen, "record")}; ${Math.floor((done / Math.max(1, total)) * 100)} % searched. Esc ends it.`;
        }
        if (line_.end) {
          const { reason, read: seen, matches, leaderless: left } = line_.end;
          const why = { end: "", matches: " More may follow: narrow the search.", time: " The time was over: begin later." }[reason];
          told.textContent = [`${counted(matches, "match").replace("matchs", "matches")} in ${counted(seen, "record")}.${why}`, leaderless(left)].filter(Boolean).join(" · ");
        }
      }
    });
  }

  function leaderless(all) { return all.length ? `without a leader, not read: ${all.slice(0, 20).join(", ")}` : ""; }

  // ---- what is asked for

  function form() {
    const partition = h("select", { onchange: () => read() }, h("option", { value: "" }, "all"));
    const known = query.get("partition"); // how many there are is asked for meanwhile
    if (/^\d{1,9}$/.test(known || "")) partition.append(h("option", { value: known, selected: true }, known));
    const start = h("select", { onchange: () => { kind(); if (!["time", "place"].includes(start.value)) read(); } },
      h("option", { value: "" }, "newest first"), h("option", { value: "earliest" }, "oldest first"), h("option", { value: "time" }, "from a time"), h("option", { value: "place" }, "from a place"));
    const when = h("input", { type: "datetime-local", step: "1", hidden: true, "aria-label": "Time", onchange: () => read() });
    const place = h("input", { hidden: true, "aria-label": "Place", placeholder: "-10m, 1200, latest-500", list: "places", onchange: () => read() });
    const word = h("input", { type: "search", value: query.get("word") || "", placeholder: "Search  ( / )", "aria-label": "Search in records", "data-search": true });
    const parts = h("select", { "aria-label": "Where to search" }, h("option", { value: "" }, "everywhere"), ["value", "key", "headers"].map((each) => h("option", { value: each }, `in ${each === "headers" ? each : `the ${each}`}`)));
    const exact = h("input", { type: "checkbox" });
    const go = h("button", { type: "submit" }, "Search"), tailing = h("button", { type: "button", onclick: () => tail() }, "Tail"), halt = h("button", { type: "button", hidden: true, onclick: stop }, "Stop");
    const kind = () => { when.hidden = start.value !== "time"; place.hidden = start.value !== "place"; (when.hidden ? place.hidden ? start : place : when).focus(); };
    const node = h("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); search(); } },
      field("Partition", partition), field("Records", start), when, place, h("datalist", { id: "places" }, ["-10m", "-1h", "-1d", "latest-1000", "earliest+1000"].map((value) => h("option", { value }))),
      h("span", { class: "joined" }, word, parts, go), h("label", { class: "check" }, exact, "Match case"), tailing, halt);
    const from = () => ({ "": "", earliest: "earliest", time: when.value && new Date(when.value).toISOString(), place: place.value.trim() })[start.value];
    return {
      node,
      partition: () => partition.value,
      partitions: (count) => {
        const chosen = partition.value;
        fill(partition, h("option", { value: "" }, "all"), Array.from({ length: Math.min(count, 500) }, (_, index) => h("option", { value: String(index) }, String(index))));
        partition.value = chosen;
      },
      isNewest: () => !from(),
      place: () => ({ partition: partition.value, from: from() }),
      search: () => ({ word: word.value, in: parts.value, case: exact.checked ? "exact" : "" }),
      busy: (is) => { halt.hidden = !is; },
    };
  }
}
