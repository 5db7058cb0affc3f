"""What `replog log verify` says on a terminal while it works through many logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import replog
from replog.cli import common
from tests.cluster.cli_runs import replog_here


def test_it_says_which_log_is_verified_and_how_many_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        with replog.open_log(tmp_path / name) as log:
            log.append(b"x")
        (tmp_path / name / "log-0").rename(tmp_path / f"{name}-0")
    (tmp_path / "meta.properties").write_bytes((tmp_path / "a" / "meta.properties").read_bytes())
    silent = replog_here("log", "verify", tmp_path)
    said: list[str] = []

    @contextmanager
    def waiting(text: str) -> Iterator[Callable[[str], None]]:
        said.append(text)
        yield lambda _: None

    monkeypatch.setattr(common, "waiting", waiting)
    assert replog_here("log", "verify", tmp_path) == silent
    assert silent.err == ""
    assert list(dict.fromkeys(said)) == ["verifying a-0, 0 of 2 logs done", "verifying b-0, 1 of 2 logs done"]
