"""Collects quickly: every process that runs tests imports all of them, and what one has compiled the others find.

pytest rewrites the asserts of a file and compiles it, three quarters of a collection, once for as long as the file stays as it is.
In a new copy several processes (`pytest -n 3`) that went through the files in the same order would each do that for each.  So
each begins with a share of the files that is its own, and collects after that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest


def share_of(files: Sequence[Path], worker: int, workers: int) -> Sequence[Path]:
    """The files that a process begins with.

    Args:
        files: All of them, in the same order in each process.
        worker: The number of the process, from 0.
        workers: How many there are.
    """
    return files[worker::workers]


def files_of_tests(config: pytest.Config) -> list[Path]:
    """Returns the files of tests below the folders and files of the command line, in order."""
    unwanted = config.getini("norecursedirs")
    found: list[Path] = []
    for argument in config.args:
        start = config.invocation_params.dir / argument.partition("::")[0]
        below = sorted(start.rglob("test_*.py")) if start.is_dir() else [start]
        found += [
            path
            for path in below
            if not any(
                folder.match(pattern)
                for folder in path.parents
                if folder.is_relative_to(start) and folder != start
                for pattern in unwanted
            )
        ]
    return found


def import_share(session: pytest.Session) -> None:
    """Imports the share of this process, as a collection would; what cannot be imported is left to the collection, which says why."""
    process = getattr(session.config, "workerinput", None)
    if process is None:
        return
    worker = int(process["workerid"].removeprefix("gw"))
    for path in share_of(files_of_tests(session.config), worker, process["workercount"]):
        with contextlib.suppress(Exception, pytest.skip.Exception):
            _ = pytest.Module.from_parent(session, path=path).obj
