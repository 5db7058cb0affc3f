"""Worked examples of compaction: keys and values in, what is left (`tests/data/log/compaction_*.txt`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_compaction_kit import COMPACTED, compact, end_transaction, new_log, put, seal, shown
from log_test_kit import T0
from msgspec.structs import replace

from replog.testing.simulated_filesystem import SimulatedFileSystem
from tests import datadriven

FILES = sorted((Path(__file__).parents[2] / "data" / "log").glob("compaction_*.txt"))


class Example:
    """One log.  Large segments: `roll` ends them, or a small `segment` size."""

    def __init__(self) -> None:
        self.log = new_log(SimulatedFileSystem(), replace(COMPACTED, segment_bytes=100_000))
        self.sequences: dict[int, int] = {}

    def execute(self, command: str) -> str:
        name, *words = command.split()
        return getattr(self, f"do_{name}")(words) or ""

    def do_append(self, words: list[str]) -> None:
        """`append a=1 b=-`, then `by 7` for an idempotent producer, `in 7` for a transaction."""
        fields: dict[str, int | bool] = {}
        if words[-2:-1] in (["by"], ["in"]):
            producer_id = int(words[-1])
            fields = {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": words[-2] == "in"}
            fields["base_sequence"] = self.sequences.get(producer_id, 0)
            words = words[:-2]
            self.sequences[producer_id] = int(fields["base_sequence"]) + len(words)
        pairs = [tuple(None if part == "-" else part.encode() for part in word.split("=")) for word in words]
        put(self.log, *pairs, **fields)  # type: ignore[arg-type]  # two parts each

    def do_commit(self, words: list[str]) -> None:
        end_transaction(self.log, int(words[0]), is_commit=True)

    def do_abort(self, words: list[str]) -> None:
        end_transaction(self.log, int(words[0]), is_commit=False)

    def do_roll(self, _words: list[str]) -> None:
        seal(self.log)

    def do_config(self, words: list[str]) -> None:
        """`config min_compaction_lag_ms=5`"""
        changes = {name: float(value) if "." in value else int(value) for name, value in (w.split("=") for w in words)}
        self.log.set_config(replace(self.log.config, **changes))  # type: ignore[arg-type]  # names of fields

    def do_compact(self, words: list[str]) -> str:
        """`compact`, `compact at 1000` (ms later), `compact below 4` (high watermark)."""
        options = dict(zip(words[::2], words[1::2], strict=True))
        stats = compact(
            self.log,
            now_ms=T0 + int(options.get("at", "0")),
            high_watermark=int(options["below"]) if "below" in options else None,
        )
        if stats is None:
            return "nothing to do"
        return f"clean to {stats.clean_end_offset}, {stats.records_kept} of {stats.records_read} kept"

    def do_show(self, _words: list[str]) -> str:
        return "\n".join(shown(self.log))

    def do_segments(self, _words: list[str]) -> str:
        return " ".join(str(base) for base in self.log.segment_base_offsets)


def test_there_are_examples() -> None:
    assert len(FILES) >= 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_worked_example(path: Path) -> None:
    datadriven.run(path, Example().execute)
