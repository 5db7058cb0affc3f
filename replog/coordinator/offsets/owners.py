"""What the keeper of offsets has to know of the groups that they belong to."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from replog.coordinator.records import CoordinatorRecord
from replog.errors import UnknownMemberIdError


class OffsetOwner(Protocol):
    """A group, as its offsets see it."""

    def check_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:
        """Checks that the caller may commit now.

        Raises:
            ReplogError: It is no member, or of another epoch or generation.
        """
        ...

    def check_transactional_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:
        """Checks that the caller may commit now in a transaction; one that says nothing of a member may (KIP-447).

        Raises:
            ReplogError: It is no member, or of another epoch or generation.
        """
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Checks that the caller may be told offsets.

        Raises:
            ReplogError: It is no member, or of another epoch.
        """
        ...

    def check_delete_offsets(self) -> None:
        """Checks that offsets may be deleted.

        Raises:
            ReplogError: They are in use.
        """
        ...

    def subscribed_among(self, topics: Collection[str]) -> Collection[str]:
        """Returns those of some topics that a member reads; it may look at the words of all members."""
        ...

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """Returns when the retention of an offset began, in milliseconds since 1970; None where it is kept.

        Args:
            commit_timestamp_ms: The time at which the offset was committed.
        """
        ...


class OffsetOwners(Protocol):
    """All groups of a shard that are more than their offsets."""

    def group_ids(self) -> Iterable[str]:
        """Returns their ids."""
        ...

    def find(self, group_id: str) -> OffsetOwner | None:
        """Returns a group; None where there is none, or none but its offsets."""
        ...

    def is_as_written(self, group_id: str) -> bool:
        """Whether the log says of a group what is known of it here."""
        ...

    def removal(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that remove a group; none where there is none, or it has members."""
        ...


class SimpleGroup:
    """A group that is nothing but its offsets: somebody keeps them here, and assigns partitions elsewhere."""

    def check_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:
        """Checks that a caller that commits does not take itself for a member.

        Raises:
            UnknownMemberIdError: It does.
        """
        if member_epoch >= 0:
            who = f"member {member_id!r}" + (f" of instance {instance_id!r}" if instance_id is not None else "")
            raise UnknownMemberIdError(f"the group has offsets and no members, {who} has to join it first")

    def check_transactional_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:
        """Checks the same for a transaction."""
        self.check_commit(member_id, instance_id, member_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Lets anybody read the offsets."""

    def check_delete_offsets(self) -> None:
        """Lets anybody delete offsets."""

    def subscribed_among(self, topics: Collection[str]) -> Collection[str]:  # noqa: ARG002 - as every owner is asked
        """Returns none: there is no member."""
        return ()

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """Returns the time of the commit."""
        return commit_timestamp_ms
