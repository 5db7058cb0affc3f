"""Tests for what brings entries from images to the authorizer: what is in force is what the newest image says."""

from __future__ import annotations

from uuid import UUID

import pytest
from metadata_histories import replayed

from replog.access.entries import AclEntry, AclOperation, PatternType, Permission, ResourceKind
from replog.access.principal import Principal
from replog.access.standard import StandardAuthorizer
from replog.errors import BrokerNotAvailableError
from replog.metadata import MetadataImage
from replog.metadata.acl_updates import AclUpdates
from replog.metadata.image import image_records
from replog.metadata.records import AccessControlEntryRecord, NoOpRecord, RemoveAccessControlEntryRecord

ENTRY = AclEntry(ResourceKind.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, Permission.ALLOW)
ADDED = AccessControlEntryRecord(UUID(int=1), ENTRY)
GONE = RemoveAccessControlEntryRecord(UUID(int=1))


def reads(authorizer: StandardAuthorizer) -> bool:
    return authorizer.allows(Principal("a"), "h", AclOperation.READ, ResourceKind.TOPIC, "t")


def test_each_image_is_in_force_as_a_whole() -> None:
    authorizer = StandardAuthorizer()
    updates = AclUpdates(authorizer)
    with pytest.raises(BrokerNotAvailableError):
        reads(authorizer)
    image = replayed([NoOpRecord()])
    updates(image)
    assert not reads(authorizer), "an image without entries is known, too"
    image = replayed([ADDED], image)
    updates(image)
    updates(image)
    assert (reads(authorizer), authorizer.entries_count) == (True, 1)
    image = replayed([GONE, AccessControlEntryRecord(UUID(int=2), ENTRY)], image)
    updates(image)
    assert (reads(authorizer), authorizer.entries_count) == (True, 1)
    updates(replayed([RemoveAccessControlEntryRecord(UUID(int=2))], image))
    assert (reads(authorizer), authorizer.entries_count) == (False, 0)


def test_a_snapshot_takes_the_place_of_what_was_before() -> None:
    authorizer = StandardAuthorizer()
    updates = AclUpdates(authorizer)
    updates(replayed([AccessControlEntryRecord(UUID(int=7), ENTRY)]))
    snapshot = replayed(list(image_records(replayed([ADDED]))))
    updates(snapshot)
    assert (reads(authorizer), authorizer.entries_count) == (True, 1)
    updates(MetadataImage())
    assert (reads(authorizer), authorizer.entries_count) == (False, 0)
