"""One value of 9 MB in a local log: refused with the limit named, or given back by every door."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_kit import values
from typer.testing import CliRunner

import replog
from replog.cli.app import app
from replog.errors import RecordTooLargeError

LARGE = b"x" * (9 << 20)
BATCH_BYTES = 16 << 20


def test_the_usual_limit_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        with pytest.raises(RecordTooLargeError, match="larger max_batch_bytes"):
            log.append(LARGE)
        assert log.append(b"small") == 0


async def test_every_door_gives_it_back(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log", max_batch_bytes=BATCH_BYTES) as log:
        log.append_many([b"before", LARGE, b"after"])
        assert values(log) == [b"before", LARGE, b"after"]
        assert log.read(1, max_bytes=100, max_records=1)[0].value == LARGE
    with replog.open_log(tmp_path / "log", read_only=True) as log:  # what was written under another limit
        assert log.to_arrow().column("value").to_pylist()[1] == LARGE
    async with await replog.open_log_async(tmp_path / "log", max_batch_bytes=BATCH_BYTES) as log:
        assert [record.value async for record in log.iterate()][1] == LARGE
    target = tmp_path / "records.jsonl"
    for command in (["verify"], ["dump"], ["export", "--to", "jsonl", "-o", str(target)]):
        result = CliRunner().invoke(app, ["log", command[0], str(tmp_path / "log" / "log-0"), *command[1:]])
        assert result.exit_code == 0, result.output
    assert len(target.read_text().splitlines()) == 3
