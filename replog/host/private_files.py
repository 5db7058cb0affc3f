"""Files with secrets in them: whether others than their owner may read them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

_FOR_OTHERS: Final = 0o077
"""The permissions of a file beyond those of its owner."""

_log = logging.getLogger(__name__)


def warn_if_open(path: Path, what: str) -> None:
    """Tells in the log that a file with a secret may be read by others than its owner.

    Args:
        path: The file.
        what: What is in it.
    """
    if path.stat().st_mode & _FOR_OTHERS:
        _log.warning("%s has %s, and not only its owner may open it: chmod 600 %s", path, what, path)
