"""How the cluster is: the sentence and the facts of `replog status`, the brokers, and the metadata quorum."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from aiohttp import web
from msgspec.structs import asdict

from replog.cli.metadata.log import metadata_directory
from replog.cli.views.health import facts, sentence
from replog.console.asking import answered
from replog.console.context import ASK_MS, CONTEXT
from replog.log.snapshots.files import parse_snapshot_name

SNAPSHOTS_MAX: Final = 20
"""Snapshots that are shown, the newest; a node keeps as many as its retention asks for."""


async def about(request: web.Request) -> web.Response:
    """Tells what this console may do."""
    settings = request.app[CONTEXT].settings
    return answered(
        {
            "bootstrap_servers": settings.bootstrap_servers,
            "allow_changes": settings.allow_changes,
            "has_timeline": settings.metadata_dir is not None,
        }
    )


async def health(request: web.Request) -> web.Response:
    """Tells how the cluster is, and whom it waits for."""
    found = await request.app[CONTEXT].health.get()
    leader_id = -1 if found.quorum is None else found.quorum.leader_id
    brokers = [
        asdict(each) | {"is_up": each.is_up, "is_controller": each.broker_id == leader_id} for each in found.brokers
    ]
    return answered(
        {
            "sentence": sentence(found),
            "is_healthy": found.is_healthy,
            "cluster_id": found.cluster_id,
            "facts": facts(found),
            "brokers": brokers,
        }
    )


async def quorum(request: web.Request) -> web.Response:
    """Tells the leader, the voters and the observers of the metadata quorum, and the snapshots of the node whose folder is known."""
    context = request.app[CONTEXT]
    found, folder = await context.admin.describe_quorum(timeout_ms=ASK_MS), context.settings.metadata_dir
    snapshots = None if folder is None else await asyncio.to_thread(snapshots_in, folder)
    return answered(asdict(found) | {"snapshots": snapshots})


def snapshots_in(folder: Path) -> list[dict[str, int]]:
    """Returns the newest snapshots of a metadata log, the newest first: what each stands for, its bytes, when it was written.

    Args:
        folder: The log directory that holds the metadata log.

    Raises:
        UsageError: There is no metadata log.
    """
    found = []
    with os.scandir(metadata_directory(folder)) as entries:
        for entry in entries:
            snapshot = parse_snapshot_name(entry.name)
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                if snapshot is not None:
                    found.append((snapshot, entry.stat()))
    return [
        {
            "end_offset": snapshot.end_offset,
            "epoch": snapshot.epoch,
            "size_bytes": status.st_size,
            "written_ms": status.st_mtime_ns // 1_000_000,
        }
        for snapshot, status in sorted(found, key=lambda each: each[0], reverse=True)[:SNAPSHOTS_MAX]
    ]
