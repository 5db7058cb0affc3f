"""What there are coordinators of, each over an internal topic of its own."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from replog.errors import InvalidGroupIdError, InvalidRequestError, ReplogError
from replog.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog.rpc.request_limits import MAX_TEXT_CHARACTERS


class CoordinatorKind(Struct, frozen=True):
    """One kind of coordinators.

    Attributes:
        topic: The internal topic; the leader of a partition coordinates those whose names belong to it.
        noun: What is coordinated, for messages to people.
        name_noun: What the name of one of those is called.
        error: The error of a name that none may have.
    """

    topic: str
    noun: str
    name_noun: str
    error: type[ReplogError]

    def problem_of(self, name: str) -> ReplogError | None:
        """Returns what is wrong with a name: whatever the protocol, all tools have to be able to say it; None: nothing."""
        if not name:
            return self.error(f"the {self.name_noun} is empty; give the {self.noun} a name")
        if len(name) > MAX_TEXT_CHARACTERS:
            return self.error(
                f"the {self.name_noun} has {len(name):,} characters, and may have {MAX_TEXT_CHARACTERS:,}: shorten it"
            )
        return None


GROUPS: Final = CoordinatorKind(OFFSETS_TOPIC, "group", "group id", InvalidGroupIdError)
TRANSACTIONS: Final = CoordinatorKind(
    TRANSACTIONS_TOPIC, "transactional producer", "transactional id", InvalidRequestError
)
