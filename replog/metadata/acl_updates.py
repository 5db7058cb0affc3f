"""Brings the entries of access control lists from each image of the metadata to what decides by them."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from replog.access.entries import AclEntry
from replog.access.standard import StandardAuthorizer
from replog.metadata.image import MetadataImage
from replog.metadata.persistent_map import difference


class AclUpdates:
    """Puts what changed from image to image in force, each image as a whole.

    Args:
        authorizer: What decides by the entries; it knows none before the first image.
    """

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self._authorizer = authorizer
        self._told: Mapping[UUID, AclEntry] | None = None

    def __call__(self, image: MetadataImage) -> None:
        """Takes the newest image; costs what has changed since the last one."""
        if self._told is image.acls:
            return
        before: Mapping[UUID, AclEntry] = {} if self._told is None else self._told
        changes = difference(before, image.acls)
        self._told = image.acls
        self._authorizer.update(
            gone=[before[acl_id] for acl_id in changes if acl_id in before],
            new=[entry for entry in changes.values() if entry is not None],
        )
