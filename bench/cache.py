"""Where the bench keeps what takes long to make: ``~/.cache/replog-bench``, or below ``XDG_CACHE_HOME``.

A folder gets its name when it is complete, so that half of one is never used.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept(name: str, make: Callable[[Path], object]) -> Path:
    """Returns a folder of the cache, made the first time.

    Args:
        name: The name of the folder, which says all that its content depends on.
        make: The function that makes it, at the path that it is given.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "replog-bench"
    folder = root / name
    if not folder.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix="making-") as making:
            made = Path(making) / name
            make(made)
            if not folder.is_dir():  # another run may have been faster
                made.rename(folder)
    return folder
