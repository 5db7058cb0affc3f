"""Tests for what brings entries from images to the authorizer: what is in force is what the newest image says."""

from __future__ import annotations

from uuid import UUID

import pytest
from broker_kit import wait_until
from msgspec.structs import replace

from replog.access.entries import AclEntry, AclOperation, PatternType, Permission, ResourceKind
from replog.access.principal import Principal
from replog.access.standard import StandardAuthorizer
from replog.broker.quorum.acl_updates import AT_ONCE_MAX, AclUpdates
from replog.errors import BrokerNotAvailableError
from replog.metadata import MetadataImage
from replog.metadata.image import image_records
from replog.metadata.records import AccessControlEntryRecord, NoOpRecord, RemoveAccessControlEntryRecord
from tests.unit.metadata.metadata_histories import replayed
from tests.work_counts import calls_of

ENTRY = AclEntry(ResourceKind.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, Permission.ALLOW)
ADDED = AccessControlEntryRecord(UUID(int=1), ENTRY)
GONE = RemoveAccessControlEntryRecord(UUID(int=1))


def reads(authorizer: StandardAuthorizer) -> bool:
    return authorizer.allows(Principal("a"), "h", AclOperation.READ, ResourceKind.TOPIC, "t")


def raises(error: BaseException) -> None:
    raise error


def test_each_image_is_in_force_as_a_whole() -> None:
    authorizer = StandardAuthorizer()
    updates = AclUpdates(authorizer, raises)
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
    updates = AclUpdates(authorizer, raises)
    updates(replayed([AccessControlEntryRecord(UUID(int=7), ENTRY)]))
    snapshot = replayed(list(image_records(replayed([ADDED]))))
    updates(snapshot)
    assert (reads(authorizer), authorizer.entries_count) == (True, 1)
    updates(MetadataImage())
    assert (reads(authorizer), authorizer.entries_count) == (False, 0)


async def test_thousands_of_entries_are_arranged_beside_the_loop_and_later_images_come_after_them() -> None:
    authorizer = StandardAuthorizer()
    updates = AclUpdates(authorizer, raises)
    updates(replayed([NoOpRecord()]))
    others = [replace(ENTRY, principal=f"User:u{number}") for number in range(2 * AT_ONCE_MAX)]
    many = replayed([ADDED, *(AccessControlEntryRecord(UUID(int=2 + n), each) for n, each in enumerate(others))])
    assert calls_of(lambda: updates(many)) < AT_ONCE_MAX, "they are not even looked for in the step of the image"
    assert (reads(authorizer), authorizer.entries_count) == (False, 0), "nothing is in force in the step of the image"
    updates(replayed([GONE], many))
    await wait_until(lambda: authorizer.entries_count == len(others))
    assert not reads(authorizer)
    updates(many)
    assert reads(authorizer), "a small change is in force at once again"
