"""A simulated disk with one folder, and one way to say "this file is refused, there"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import DamagedCheckpointError, FileSystem, replace_file

PATH = "/logs/file"

Refused: TypeAlias = Callable[[Callable[[FileSystem, str], Any], bytes], DamagedCheckpointError]


@pytest.fixture
def disk() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_dirs("/logs")
    return disk


@pytest.fixture
def refused(disk: SimulatedFileSystem) -> Refused:
    """Puts bytes where the file is, reads them, and returns the error."""

    def check(read: Callable[[FileSystem, str], Any], data: bytes) -> DamagedCheckpointError:
        replace_file(disk, PATH, data)
        with pytest.raises(DamagedCheckpointError) as caught:
            read(disk, PATH)
        assert caught.value.path == PATH
        assert caught.value.reason in str(caught.value)
        assert PATH in str(caught.value)
        return caught.value

    return check
