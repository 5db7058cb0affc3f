"""The programs of docs/INSTALL.md and of the guides run as they stand there: FASTAPI.md, NOTEBOOK.md, FROM_OTHER_CLIENTS.md."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import subprocess
import sys
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import replog
from replog.client import SyncAdmin
from tests.lint import page_examples

PATIENCE_S = 60
LISTENS = re.compile(r"running on http://127\.0\.0\.1:(\d+)")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """One broker for the programs of all pages."""
    with replog.embedded() as broker:
        yield broker.bootstrap_servers


def programs(page: str, servers: str) -> list[str]:
    return [block.replace("127.0.0.1:9092", servers) for block in page_examples.blocks(page)]


def ran(program: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout


def test_five_minutes(servers: str, tmp_path: Path) -> None:
    (program,) = programs("docs/INSTALL.md", servers)
    assert ran(program, tmp_path).startswith("10 records, the first: b'taxi-")
    with pytest.raises(subprocess.CalledProcessError) as again:
        ran(program, tmp_path)
    assert "rides" in again.value.stderr.splitlines()[-1]
    with SyncAdmin(servers) as admin:
        admin.delete_topic("rides")


def test_a_group_goes_on_with_the_other_client(servers: str, tmp_path: Path) -> None:
    before, after = programs("docs/guides/FROM_OTHER_CLIENTS.md", servers)
    with SyncAdmin(servers) as admin:
        admin.create_topic("orders", 1)
    assert ran(before, tmp_path).splitlines() == [f"aiokafka b'order {number}'" for number in range(4)]
    assert ran(after, tmp_path).splitlines() == [f"replog b'order {number}'" for number in range(4, 11)]


async def test_the_cells_of_a_notebook(servers: str) -> None:
    names: dict[str, Any] = {}
    for cell in programs("docs/guides/NOTEBOOK.md", servers):
        running = eval(compile(cell, "NOTEBOOK.md", "exec", flags=PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(running):
            await asyncio.wait_for(running, PATIENCE_S)
    assert names["frame"].groupby("key")["minutes"].count().sum() == 1000
    assert sorted(int(record.value) for record in names["records"]) == sorted(n % 50 for n in range(1000))


def test_the_app_keeps_and_streams_events(tmp_path: Path) -> None:
    (app,) = page_examples.blocks("docs/guides/FASTAPI.md")
    (tmp_path / "app.py").write_text(app)
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            address = next(f"http://127.0.0.1:{found[1]}" for line in process.stderr if (found := LISTENS.search(line)))
            with pytest.raises(HTTPError, match="422"):
                urlopen(f"{address}/events", b"no JSON", timeout=PATIENCE_S)
            for number in range(2):
                event = Request(f"{address}/events", json.dumps({"table": number}, indent=1).encode())
                with urlopen(event, timeout=PATIENCE_S) as answer:
                    assert (answer.status, json.load(answer)) == (201, {"offset": number})
            with urlopen(f"{address}/events?start=1", timeout=PATIENCE_S) as answer:
                assert json.load(answer) == [{"offset": 1, "event": {"table": 1}}]
            with urlopen(f"{address}/events/stream", timeout=PATIENCE_S) as answer:
                lines = [answer.readline() for _ in range(5)]
                assert lines == [b"id: 0\n", b'data: {"table": 0}\n', b"\n", b"id: 1\n", b'data: {"table": 1}\n']
        finally:
            process.kill()
    with replog.open_log(tmp_path / "events", read_only=True) as log:
        assert [json.loads(record.value) for record in log] == [{"table": 0}, {"table": 1}]
