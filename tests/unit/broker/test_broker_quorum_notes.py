"""What a voter notes durably beside the metadata log is written in a thread: an fsync may take a second."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from node_kit import node

from replog.broker.quorum.state_file import QuorumStateFile
from replog.broker.quorum.storage import QuorumStorage
from replog.testing import SimulatedFileSystem
from replog_checkpoints import read_quorum_state, write_quorum_state
from replog_quorum.messages import AppendVoters


async def test_a_voter_set_is_noted_in_a_thread_before_it_is_appended() -> None:
    done: list[str] = []

    async def in_thread(run: Any) -> None:
        run()
        done.append("in a thread")

    log: Any = SimpleNamespace(log_end_offset=1, log=None, append_voters=lambda *_args, **_more: done.append("append"))
    appends: Any = SimpleNamespace(append_all=lambda: done.append("what waits"), is_open=False)
    storage = QuorumStorage(
        log,
        SimpleNamespace(),  # type: ignore[arg-type]
        appends,
        SimpleNamespace(request=lambda *_args, **_more: None),  # type: ignore[arg-type]
        post=lambda _: None,
        on_control_records=lambda _: None,
        note_others=lambda: done.append("noted"),
        in_thread=in_thread,
    )
    storage.appended = lambda *_: None  # type: ignore[method-assign]
    await storage.change(AppendVoters(1, (1, 2), writes_version=False))  # type: ignore[arg-type]
    assert done == ["noted", "in a thread", "what waits", "append"]


async def test_a_node_that_starts_notes_in_a_thread_what_its_log_names(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    note = QuorumStateFile.note_others

    def noting(file: QuorumStateFile, *, names_others: bool) -> None:
        threads.append(threading.current_thread())
        note(file, names_others=names_others)

    monkeypatch.setattr(QuorumStateFile, "note_others", noting)
    fs = SimulatedFileSystem()
    async with node(fs):
        pass
    path = "/data/__cluster_metadata-0/quorum-state"
    state = read_quorum_state(fs, path)
    assert state is not None
    write_quorum_state(fs, path, replace(state, names_others=True))
    async with node(fs):
        pass
    assert threads
    assert threading.main_thread() not in threads
