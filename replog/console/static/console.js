// Which page is shown for which address, and the keys that hold everywhere.

import { ask } from "./ask.js";
import { fill, h, told } from "./dom.js";
import { health } from "./health.js";
import { topics } from "./topics.js";
import { topic } from "./topic.js";
import { messages } from "./messages.js";
import { groups } from "./groups.js";
import { group } from "./group.js";
import { letters } from "./letters.js";
import { timeline } from "./timeline.js";
import { quorum } from "./quorum.js";

const PAGES = { "": health, topics, topic, messages, groups, group, letters, timeline, quorum };
const TOP = [["", "Health"], ["topics", "Topics"], ["groups", "Groups"], ["letters", "Dead letters"], ["timeline", "Timeline"], ["quorum", "Quorum"]];

const main = document.getElementById("main");
const notice = document.getElementById("notice");
let leaving = new AbortController();
let about = { allow_changes: false, has_timeline: false, bootstrap_servers: "" };

function parsed(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  return { name, argument: rest.join("/"), query: new URLSearchParams(query || "") };
}

function show() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  leaving.abort();
  leaving = new AbortController();
  const { name, argument, query } = parsed(location.hash);
  const page = PAGES[name] || PAGES[""];
  const root = h("div", { class: "page", "data-at": location.hash });
  trouble("");
  fill(main, root);
  nav(name);
  document.title = `${[argument, name].filter(Boolean).join(" · ") || "health"} · replog console`;
  page({ root, argument, query, about, signal: leaving.signal, trouble });
  main.scrollTo?.(0, 0);
}

function nav(name) {
  const under = { topic: "topics", messages: "topics", group: "groups" };
  const current = under[name] || name;
  fill(document.getElementById("pages"), TOP.map(([to, text]) =>
    h("a", { href: `#/${to}`, "aria-current": to === current ? "page" : null }, text)));
}

function trouble(text) {
  if (notice.dataset.text === text) return;
  notice.dataset.text = text;
  fill(notice, text ? told(text) : null);
  notice.classList.toggle("shown", Boolean(text));
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    const box = main.querySelector("[data-search]");
    if (box) { event.preventDefault(); box.focus(); box.select(); }
  } else if (event.key === "Escape") {
    const ended = !main.dispatchEvent(new CustomEvent("escape", { cancelable: true }));
    if (!ended && typing) event.target.blur();
  }
});

window.addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); });

try { about = await ask("about", {}); } catch (error) { trouble(error.message); }
document.getElementById("where").textContent = about.bootstrap_servers;
show();
