"""A simulated disk with one folder, and one way to say "this file is refused, there"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import CorruptCheckpointError, FileSystem, replace_file

PATH = "/logs/file"

Refused: TypeAlias = Callable[[Callable[[FileSystem, str], Any], bytes], CorruptCheckpointError]


@pytest.fixture
def disk() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_dirs("/logs")
    return disk


@pytest.fixture
def refused(disk: SimulatedFileSystem) -> Refused:
    """Puts bytes where the file is, reads them, and returns the error."""

    def check(read: Callable[[FileSystem, str], Any], data: bytes) -> CorruptCheckpointError:
        replace_file(disk, PATH, data)
        with pytest.raises(CorruptCheckpointError) as caught:
            read(disk, PATH)
        assert caught.value.path == PATH
        assert caught.value.reason in str(caught.value)
        assert PATH in str(caught.value)
        return caught.value

    return check
