"""A console beside a broker in this process, and a browser that looks at it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from replog.config.kinds import Endpoint
from replog.console.serving import serve
from replog.console.settings import ConsoleSettings

PATIENCE_S = 20.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Asked:
    """The endpoints of a console, asked by a client of HTTP."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session = session
        self.address = address

    async def get(self, name: str, status: int = 200, **query: str | int) -> Any:
        async with self.session.get(f"{self.address}api/{name}", params=query) as response:
            found = await response.json()
            assert response.status == status, found
            return found

    async def lines(self, name: str, **query: str | int) -> list[dict[str, Any]]:
        async with self.session.get(f"{self.address}api/{name}", params=query) as response:
            assert response.status == 200, await response.text()
            return [json.loads(line) async for line in response.content]

    async def post(self, name: str, body: object, status: int = 200) -> Any:
        headers = {"X-Replog-Console": "1"}
        async with self.session.post(f"{self.address}api/{name}", json=body, headers=headers) as response:
            found = await response.json()
            assert response.status == status, found
            return found


@asynccontextmanager
async def console_of(servers: str, **settings: Any) -> AsyncIterator[Asked]:
    """Serves a console of these brokers, and ends it."""
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(ConsoleSettings(servers, Endpoint("127.0.0.1", 0), **settings), stop, address.set_result)
    )
    try:
        await asyncio.wait({serving, address}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        async with aiohttp.ClientSession() as session:
            yield Asked(session, address.result())
    finally:
        stop.set()
        await serving


class Browser:
    """A tab of Chromium, driven over its own protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.complaints: list[str] = []

    async def send(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                told = await self._socket.receive_json()
                if told.get("id") == number:
                    assert "error" not in told, told
                    return dict(told["result"])
                self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        if told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["params"]["exceptionDetails"]))
        elif told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
            self.complaints.append(f"{told['params']['entry']['text']} {told['params']['entry'].get('url', '')}")

    async def run(self, script: str) -> Any:
        """Returns the value of an expression on the page."""
        found = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Waits until an expression on the page is true."""
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while not await self.run(f"Boolean({script})"):
            if asyncio.get_running_loop().time() > deadline_s:
                raise AssertionError(
                    f"never true: {script}\n{await self.run('document.body.innerText.slice(0, 2000)')}\n{self.complaints}"
                )
            await asyncio.sleep(0.05)

    async def key(self, key: str, **more: object) -> None:
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, **more)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def picture(self, path: Path) -> None:
        """Takes a picture of what is seen, for people."""
        path.write_bytes(base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"]))


@asynccontextmanager
async def browser_at(address: str, folder: Path) -> AsyncIterator[Browser]:
    """Opens a page in a Chromium of its own, without a screen."""
    assert CHROMIUM is not None
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={folder}", "--remote-debugging-port=0", "--remote-allow-origins=*", "about:blank"),
    ]
    with (folder / "chromium.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(CHROMIUM, *flags, stdout=log, stderr=log, start_new_session=True)
    try:
        port = await _when(lambda: _port_in(folder / "DevToolsActivePort", process))
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as response:
                tab = next(each for each in await response.json() if each["type"] == "page")
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                browser = Browser(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await browser.send(f"{domain}.enable")
                await browser.send("Page.navigate", url=address)
                yield browser
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the browser and the processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()


async def _port_in(file: Path, process: asyncio.subprocess.Process) -> int | None:
    assert process.returncode is None, "Chromium has ended"
    return int(file.read_text().split()[0]) if file.exists() and file.read_text().strip() else None


async def _when(look: Callable[[], Awaitable[int | None]]) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while (found := await look()) is None:
            await asyncio.sleep(0.05)
    return found
