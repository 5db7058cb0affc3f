"""What the console refuses before it listens, and what it makes of parameters and bytes."""

from __future__ import annotations

import asyncio
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from uuid import UUID

import pytest

from replog.broker.node import console as node_console
from replog.broker.node.console import open_console
from replog.cli.main import main
from replog.cli.views.group_reset import Target, Where
from replog.config.server import ServerConfig
from replog.console.asking import offsets_of_text
from replog.console.context import first_with
from replog.console.groups import target_of
from replog.console.history import SAMPLES_MAX, SampleHistory
from replog.console.kept import KeptAnswer
from replog.console.overview import snapshots_in
from replog.console.shown_records import ShownData, data
from replog.errors import ConfigError, InvalidRequestError
from replog.rpc.metadata_messages import PartitionInfo, TopicInfo

CONFIG = {"node.id": 1, "log.dirs": ["/nowhere"], "console.listener": "127.0.0.1:0"}


@pytest.mark.parametrize(
    ("listen", "told"), [("0.0.0.0:8090", "asks nobody who they are"), ("8090", "is not host:port")]
)
def test_other_addresses_than_loopback_are_refused(listen: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "--listen", listen]) == 2
    assert told in capsys.readouterr().err


def test_without_its_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert main(["console", "--listen", "127.0.0.1:0"]) == 2
    assert "the console needs the library aiohttp" in capsys.readouterr().err


async def test_a_broker_without_the_library_says_so_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == "aiohttp" else ModuleSpec(name, None)

    assert open_console(ServerConfig.from_mapping(CONFIG | {"console.listener": ""}), "127.0.0.1:1") is None
    monkeypatch.setattr(node_console, "find_spec", find_spec)
    with pytest.raises(ConfigError, match=r"console\.listener needs aiohttp: "):
        open_console(ServerConfig.from_mapping(CONFIG), "127.0.0.1:1")


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (None, None),
        (b"", ShownData(0, "")),
        (b"abcd", ShownData(4, "abcd")),
        ("abü".encode() + b"d", ShownData(5, "abü"[:2] + "ü", is_cut=True)),
        ("abcü".encode(), ShownData(5, "abc", is_cut=True)),
        (b"\xffbcde", ShownData(5, base64="/2JjZA==", is_cut=True)),
        (b"abc\xff", ShownData(4, base64="YWJj/w==")),
    ],
)
def test_bytes_are_text_where_they_are_and_no_character_is_cut(found: bytes | None, shown: ShownData | None) -> None:
    assert data(found, 4) == shown


def test_places_of_a_reset() -> None:
    assert target_of("shift:-3") == Target(Where.SHIFT, -3)
    assert target_of("time:1970-01-01T00:00:01Z") == Target(Where.TIME, 1_000)
    for wrong in ("", "offset:", "offset:-1", "shift:x", "file:/etc/passwd", f"offset:{'9' * 30}"):
        with pytest.raises(InvalidRequestError):
            target_of(wrong)


@pytest.mark.parametrize("wrong", ["0", "0:", ":1", "a:1", "0:-1", f"0:{'9' * 30}"])
def test_offsets_that_are_none_are_refused(wrong: str) -> None:
    assert offsets_of_text("0:17,3:5") == {0: 17, 3: 5}
    with pytest.raises(InvalidRequestError):
        offsets_of_text(wrong)


def test_numbers_of_the_last_hour_are_kept_of_what_is_there() -> None:
    history = SampleHistory()
    for number in range(SAMPLES_MAX + 10):
        history.add(number, {"g": 2 * number, "gone": 1} if number < SAMPLES_MAX else {"g": 2 * number})
    assert (history.of("gone"), history.of("unknown")) == ([], [])
    assert history.of("g") == [(number, 2 * number) for number in range(10, SAMPLES_MAX + 10)]
    history.add(SAMPLES_MAX + 10, {"g": None})
    assert len(history.of("g")) == SAMPLES_MAX, "what is not known for once is no end of a curve"


async def test_an_answer_is_asked_for_once_and_an_error_is_not_kept() -> None:
    asked: list[int] = []

    async def ask() -> int:
        asked.append(0)
        await asyncio.sleep(0)
        if len(asked) == 1:
            raise InvalidRequestError("the first time")
        return len(asked)

    kept = KeptAnswer(ask, 60.0)
    assert all(
        isinstance(each, InvalidRequestError)
        for each in await asyncio.gather(*(kept.get() for _ in range(3)), return_exceptions=True)
    )
    assert [await kept.get(), await kept.get()] == [2, 2]
    gone = asyncio.create_task(kept.get())
    await kept.close()
    await gone


def test_the_newest_snapshots_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    for name, text in (
        ("00000000000000001234-0000000007.checkpoint", "12345"),
        ("00000000000000001300-0000000007.checkpoint", "1"),
        ("00000000000000001400-0000000008.checkpoint.part", ""),
    ):
        (folder / name).write_text(text)
    found = snapshots_in(tmp_path)
    assert [(each["end_offset"], each["epoch"], each["size_bytes"]) for each in found] == [(1300, 7, 1), (1234, 7, 5)]
    assert all(each["written_ms"] > 1_700_000_000_000 for each in found)


def test_only_so_many_partitions_are_looked_at_when_nobody_looks() -> None:
    partitions = tuple(PartitionInfo(number, 1, 0, 0, (1,), (1,)) for number in range(10))
    topics = [TopicInfo(f"t{number}", UUID(int=number), partitions) for number in range(5)]
    assert [each.name for each in first_with(topics, 30)] == ["t0", "t1", "t2"]
    assert first_with(topics, 29) == topics[:2]
    assert first_with(topics, 9) == []
    assert first_with(topics, 50) == topics
