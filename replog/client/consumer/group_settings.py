"""What a consumer says about its group, and who hears of changes of the assignment."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from replog.client.arguments import require_text
from replog.client.consumer.partition_reader import OffsetReset
from replog.client.types import TopicPartition
from replog.errors import ConfigError, InvalidRequestError
from replog.errors.choices import INT32_MAX, require_at_least, require_kind
from replog.rpc.request_limits import MAX_TEXT_CHARACTERS

MAX_POLL_INTERVAL_MS = 300_000
AUTO_COMMIT_INTERVAL_MS = 5_000

DEFAULTS: Final[Mapping[str, object]] = {
    "group.instance.id": None,
    "enable.auto.commit": True,
    "auto.commit.interval.ms": AUTO_COMMIT_INTERVAL_MS,
    "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
}
"""The settings that only a member of a group has."""


class AssignmentListener:
    """Is told of changes of the assignment, in the task that reads, between two records; override what matters."""

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Hears of partitions from which nothing has been handed out yet: the place for a seek.

        It is called again if it was cancelled, and nothing is handed out before it has returned.
        """

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Hears of partitions that go when this returns: the last moment for what has to be finished or committed.

        It is called again if it was cancelled.
        """

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Hears of partitions that are another member's already: nothing of them can be committed any more."""
        await self.on_revoked(partitions)


def matcher_of(pattern: object) -> re.Pattern[str]:
    """Returns the regular expression of a subscription.

    Raises:
        InvalidRequestError: It is none.
    """
    require_text("pattern", pattern)
    try:
        return re.compile(str(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidRequestError(f"pattern is no regular expression: {error}") from None


class GroupSettings(Struct, frozen=True):
    """The settings of a member.

    Attributes:
        instance_id: The name of a static member, which has its partitions again when it restarts within a session.
        max_poll_interval_ms: How long the application may work without asking for records; then it leaves the group.
        auto_commit: Whether offsets of records that are done with are committed by themselves.
        reset: What to do with a partition that has no committed offset.
        commit_timeout_ms: How long a commit is tried.
    """

    group_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_rack: str = ""
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS
    auto_commit: bool = True
    auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS
    reset: OffsetReset = "raise"
    commit_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        """Checks each by itself.  Raises: ConfigError: One is wrong."""
        require_kind("group.id", self.group_id, str)
        if not self.group_id:
            raise ConfigError("group.id", "", 'group.id is empty; give the group a name, such as "billing"')
        _check_length("group.id", self.group_id)
        if self.instance_id is not None:
            require_kind("group.instance.id", self.instance_id, str)
            if not self.instance_id:
                raise ConfigError(
                    "group.instance.id", "", "group.instance.id is empty; name the instance, or leave it out"
                )
            _check_length("group.instance.id", self.instance_id)
        require_kind("enable.auto.commit", self.auto_commit, bool)
        _check_length("client.rack", self.client_rack)
        _check_length("client.id", self.client_id)
        require_at_least("max.poll.interval.ms", self.max_poll_interval_ms, 1, INT32_MAX)
        require_at_least("auto.commit.interval.ms", self.auto_commit_interval_ms, 1)


def refuse_without_group(given: Mapping[str, object]) -> None:
    """Refuses settings of a group's member where there is no group: nobody would check or use them.

    Args:
        given: What was given for each of `DEFAULTS`.

    Raises:
        ConfigError: One is not what it is by itself.
    """
    for field, value in given.items():
        if value != DEFAULTS[field]:
            reason = f"{field} is of a member of a group, and there is none: give group_id too, or leave it out"
            raise ConfigError(field, value, reason)


def _check_length(field: str, name: str) -> None:
    """Refuses a name that no request can carry.  Raises: ConfigError: It is one."""
    if len(name) > MAX_TEXT_CHARACTERS:
        reason = f"{field} has {len(name)} characters, {MAX_TEXT_CHARACTERS} may be; shorten it"
        raise ConfigError(field, name, reason)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(field, name, f"{field} is no text that can be sent: {error.reason}") from None
