"""The fetches over one connection to a broker: one fetch session, where the broker has room for one (KIP-227).

A connection answers in order, so both sides know after each answer what the broker has of the session.  It ends with the
connection.  Where the broker has another idea of it, the same fetch is sent again, and begins anew with all its partitions.
"""

from __future__ import annotations

from typing import Final

from replog.client.protocol.records import fetch_request, fetch_response
from replog.errors import ErrorCode
from replog.replication.fetch_positions import PartitionKey
from replog.rpc.messages import FetchPartition, FetchRequest, FetchResponse
from replog.wire.messages.fetch import FetchRequest as KafkaFetch
from replog.wire.messages.fetch import FetchResponse as KafkaFetched

NO_SESSION: Final = 0

INITIAL_EPOCH: Final = 0
"""Of a fetch that names all its partitions, and asks for a session."""

EPOCH_MAX: Final = 2**31 - 1

_REFUSED: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class LinkFetchSession:
    """The session of one connection, over which one fetch is sent at a time.

    Attributes:
        is_asked: Whether the answer to the last fetch has not been taken in: no other one may be sent.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._asked: dict[PartitionKey, FetchPartition] = {}

    @property
    def is_kept(self) -> bool:
        """Whether the broker keeps what was asked last."""
        return self._session_id != NO_SESSION and self._epoch != INITIAL_EPOCH

    def request(self, fetch: FetchRequest) -> KafkaFetch:
        """Returns a fetch as Kafka's message: of its partitions those that the broker does not have from the last one."""
        before, asked = self._asked, {(each.topic_id, each.partition_id): each for each in fetch.partitions}
        self._asked = asked
        self.is_asked = True
        if not self.is_kept:
            return fetch_request(fetch, fetch.partitions, session_id=self._session_id)
        return fetch_request(
            fetch,
            [each for key, each in asked.items() if before.get(key) != each],
            [each for key, each in before.items() if key not in asked],
            session_id=self._session_id,
            session_epoch=self._epoch,
        )

    def response(self, fetch: FetchRequest, answer: KafkaFetched, version: int) -> FetchResponse | None:
        """Returns the answer to the last request; a partition that it does not name has nothing new.

        Args:
            fetch: The fetch.
            answer: The answer.
            version: The version of both messages.

        Returns:
            The answer; None: the broker has no such session (any more), and the fetch has to be sent again.
        """
        self.is_asked = False
        was_kept = self.is_kept
        if answer.error_code not in {ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND}:
            self._epoch = INITIAL_EPOCH  # the broker may have the session, which the next fetch ends
        elif answer.error_code != ErrorCode.NONE or answer.session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            epoch = self._epoch if answer.session_id == self._session_id else INITIAL_EPOCH
            self._session_id, self._epoch = answer.session_id, epoch + 1 if epoch < EPOCH_MAX else 1
        if was_kept and (answer.error_code in _REFUSED or self._has_ended(answer)):
            return None
        return fetch_response(fetch, self._asked, answer, version)

    def _has_ended(self, answer: KafkaFetched) -> bool:
        """Whether the session ended while the fetch waited: what the answer does not name may have news all the same."""
        return answer.error_code == ErrorCode.NONE and not self.is_kept
