// Numbers, sizes and times as people read them.

const counts = new Intl.NumberFormat("en");

export const number = (value) => (value === null || value === undefined ? "–" : counts.format(value));

export const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

export function size(bytes) {
  if (bytes === null || bytes === undefined || bytes < 0) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0, value = bytes;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function span(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  if (ms < 1000) return ms ? "< 1 s" : "0 s";
  let left = Math.ceil(ms / 1000);
  const parts = [];
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const whole = Math.floor(left / length);
    left -= whole * length;
    if (whole || parts.length) parts.push(whole ? `${whole} ${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

export function time(ms) {
  if (ms < 0) return "no time";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return `${ms} ms`;
  const pad = (value, length = 2) => String(value).padStart(length, "0");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  if (perSecond === 0) return "0/s";
  return perSecond < 10 ? `${perSecond.toFixed(1)}/s` : `${number(Math.round(perSecond))}/s`;
}

// Says how long and how much of a topic is kept, as far as it is set.
export function retention(configs, unset = "default") {
  const policy = configs["cleanup.policy"] || "delete";
  const parts = [];
  if (policy.includes("compact")) parts.push("compacted");
  if (policy.includes("delete")) {
    const ms = configs["retention.ms"], bytes = configs["retention.bytes"];
    if (ms !== undefined && ms !== null) parts.push(Number(ms) < 0 ? "for ever" : span(Number(ms)));
    if (bytes !== undefined && bytes !== null && Number(bytes) >= 0) parts.push(`${size(Number(bytes))} each`);
  }
  return parts.join(", ") || unset;
}
