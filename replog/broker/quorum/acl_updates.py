"""Brings the entries of access control lists from each image of the metadata to what decides by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from replog.access.entries import AclEntry
from replog.access.standard import AclsInForce, StandardAuthorizer
from replog.broker.tasks import watched_task
from replog.metadata.image import MetadataImage
from replog.metadata.persistent_map import difference

AT_ONCE_MAX: Final = 1_000
"""Entries that are put in force in the step that brings their image; more take a thread, so that the loop is not held."""


class AclUpdates:
    """Puts what changed from image to image in force, each change as a whole and in order.

    Args:
        authorizer: What decides by the entries; it knows none before the first image.
        on_failure: The function that is told of a bug; the node stops then.
    """

    def __init__(self, authorizer: StandardAuthorizer, on_failure: Callable[[BaseException], None]) -> None:
        self._authorizer = authorizer
        self._on_failure = on_failure
        self._told: Mapping[UUID, AclEntry] | None = None
        self._newest: Mapping[UUID, AclEntry] = {}
        self._task: asyncio.Task[None] | None = None

    def __call__(self, image: MetadataImage) -> None:
        """Takes the newest image; costs what has changed since the last one."""
        self._newest = image.acls
        if self._told is self._newest or self._task is not None:
            return
        told = self._told or {}
        changes = difference(told, self._newest) if abs(len(told) - len(self._newest)) <= AT_ONCE_MAX else None
        if changes is not None and len(changes) <= AT_ONCE_MAX:
            self._authorizer.update(*_gone_and_new(told, changes))
            self._told = self._newest
        else:
            self._task = watched_task(self._follow(), name="acl-updates", on_failure=self._on_failure)

    async def _follow(self) -> None:
        """Puts the newest entries in force, and those that come meanwhile, beside the loop."""
        try:
            while self._told is not self._newest:
                told, newest = self._told or {}, self._newest
                self._authorizer.put(await asyncio.to_thread(self._made, told, newest))
                self._told = newest
        finally:
            self._task = None

    def _made(self, told: Mapping[UUID, AclEntry], newest: Mapping[UUID, AclEntry]) -> AclsInForce:
        return self._authorizer.after(*_gone_and_new(told, difference(told, newest)))


def _gone_and_new(
    before: Mapping[UUID, AclEntry], changes: Mapping[UUID, AclEntry | None]
) -> tuple[list[AclEntry], list[AclEntry]]:
    gone = [entry for acl_id in changes if (entry := before.get(acl_id)) is not None]
    return gone, [entry for entry in changes.values() if entry is not None]
