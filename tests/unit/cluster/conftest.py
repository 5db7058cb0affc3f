"""Processes in the place of nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from replog.cluster import local_cluster


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes in the place of nodes: they run for good, and nobody answers."""
    spawned: list[subprocess.Popen[bytes]] = []

    def spawn(*_args: object, **_kwargs: object) -> subprocess.Popen[bytes]:
        spawned.append(subprocess.Popen(["/bin/sleep", "600"], start_new_session=True))
        return spawned[-1]

    async def prepare() -> None: ...

    monkeypatch.setattr(local_cluster, "spawn_node", spawn)
    monkeypatch.setattr(local_cluster, "prepare_forks", prepare)
    yield spawned
    for process in spawned:
        process.kill()
        process.wait()
