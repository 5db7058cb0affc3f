"""Tells people how far the start has come, once it takes long enough for them to wonder."""

from __future__ import annotations

import logging

from replog.log import RecoveryProgress

QUIET_MS = 1_000
"""A start that is over by then needs no words; later ones come at this interval."""

RECOVERING = "recovering "
"""How such a line begins; `replog cluster` looks for it in a node's log."""

_log = logging.getLogger("replog")


class RecoveryLog:
    """Writes progress to the log, a line a second for each directory.  Called by several threads, one per directory."""

    def __init__(self) -> None:
        self._told_ms: dict[str, int] = {}

    def __call__(self, progress: RecoveryProgress) -> None:
        told_ms = self._told_ms.get(progress.directory, 0)
        is_done = progress.logs_done == progress.logs_total
        if progress.elapsed_ms - told_ms >= QUIET_MS or (is_done and told_ms):
            self._told_ms[progress.directory] = progress.elapsed_ms
            _log.info("%s", progress.describe())
