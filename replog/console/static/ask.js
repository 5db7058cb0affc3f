// Questions to the console's own server.

export class AskError extends Error {}

function address(name, params) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `/api/${name}?${new URLSearchParams(given)}`;
}

async function failure(response) {
  const text = await response.text();
  try { return new AskError(JSON.parse(text).error); } catch { return new AskError(`the console answered ${response.status}`); }
}

async function sent(url, init) {
  try { return await fetch(url, init); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new AskError("The console does not answer: its process has ended, or is just being started again.");
  }
}

export async function ask(name, params, signal) {
  const response = await sent(address(name, params), { signal });
  if (!response.ok) throw await failure(response);
  return response.json();
}

export async function change(name, body, signal) {
  const headers = { "Content-Type": "application/json", "X-Replog-Console": "1" };
  const response = await sent(`/api/${name}`, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!response.ok) throw await failure(response);
  return response.json();
}

// Yields objects as the server sends them, a line each; leaving the loop ends the question.
export async function* lines(name, params, signal) {
  const response = await sent(address(name, params), { signal });
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (left + value).split("\n");
      left = parts.pop();
      for (const part of parts) {
        const line = JSON.parse(part);
        if (line.error) throw new AskError(line.error);
        yield line;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Calls `look` now and after each pause, while the page is shown and nobody has left it. Errors are told by `trouble`, and it goes on.
export async function repeat(signal, seconds, look, trouble) {
  while (!signal.aborted) {
    try {
      await look();
      trouble("");
    } catch (error) {
      if (signal.aborted) return;
      trouble(error.message);
      if (!(error instanceof AskError)) console.error(error);
    }
    await pause(signal, seconds * 1000);
  }
}

function pause(signal, ms) {
  return new Promise((resolve) => {
    let timer = 0;
    const end = () => { clearTimeout(timer); document.removeEventListener("visibilitychange", shown); signal.removeEventListener("abort", end); resolve(); };
    const shown = () => { if (!document.hidden) end(); };
    signal.addEventListener("abort", end);
    timer = setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", shown) : end()), ms);
  });
}
