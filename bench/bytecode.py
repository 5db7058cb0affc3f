"""Bytecode of the processes that measurements and tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def keep_bytecode(directory: Path) -> None:
    """Keeps bytecode in a directory where PYTHONDONTWRITEBYTECODE wants none beside the sources; elsewhere nothing changes.

    Each process would compile the same modules again, half of the CPU with which it starts: an installed package has its
    bytecode, so that nobody who uses it pays for that.

    Args:
        directory: The directory of the bytecode of this process and of all that it starts from now on.
    """
    if sys.dont_write_bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(directory)
        sys.dont_write_bytecode = False
