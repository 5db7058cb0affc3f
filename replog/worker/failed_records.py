"""Where records go whose handler has failed: topics of retries, one for each delay, and then the topic of dead letters.

A record that is retried later stands in `NAME.retry.1`, then `NAME.retry.2` and so on, where NAME is the topic that it came from.  All
records of such a topic wait equally long from when they were written, so that the first one of a partition is due first: a reader
waits for that one alone, and holds nothing meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from replog.client.producer.config import MAX_REQUEST_BYTES_MAX
from replog.client.producer.producer import Producer
from replog.client.types import ConsumerRecord
from replog.errors import ConfigError, HandlerFailedError, InvariantViolationError
from replog.errors.choices import require_at_least, require_kind
from replog.errors.texts import error_text
from replog.worker.dead_letters import DeadLetter, own_headers
from replog.worker.results import ResultRecord, result_of

if TYPE_CHECKING:
    from replog.client.security.security import Security

DELAYS_MAX: Final = 16
DELAY_S_MAX: Final = 604_800
"""Seven days, which topics keep records by default."""

_log = logging.getLogger(__name__)


class _Step(Struct, frozen=True):
    """One topic of retries.

    Attributes:
        delay_s: How long its records wait, in seconds.
        next_topic: Where they go when they fail again; None: to the dead letters.
    """

    delay_s: float
    next_topic: str | None


class FailedRecords:
    """Writes records to where they go after they have failed.

    Args:
        servers: The brokers to ask first.
        group: The group whose worker this is.
        topics: The topics that the worker is for.
        retry_delays: The seconds before a record is tried again, one after the other; none: there are no topics of retries.
        dead_letter_topic: The topic for those that have failed after that; None: the worker ends.

    Attributes:
        retry_topics: The topics of retries, which the worker reads, too.

    Raises:
        ConfigError: A delay is none, or the topic of dead letters is one that the worker reads.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        group: str,
        topics: Sequence[str],
        retry_delays: Iterable[float],
        dead_letter_topic: str | None,
        *,
        security: Security | None = None,
    ) -> None:
        self._security = security
        delays = _checked(retry_delays)
        self._servers = servers
        self._group = group
        self._dead_letter_topic = dead_letter_topic
        self._steps: dict[str, _Step] = {}
        self._first: dict[str, str] = {}
        for topic in topics:
            names = [f"{topic}.retry.{number}" for number in range(1, len(delays) + 1)]
            for name, delay_s, following in zip(names, delays, [*names, None][1:], strict=True):
                self._steps[name] = _Step(delay_s, following)
            if names:
                self._first[topic] = names[0]
        self.retry_topics = list(self._steps)
        self._producer: Producer | None = None
        if dead_letter_topic is None:
            return
        require_kind("dead.letter.topic", dead_letter_topic, str)
        if dead_letter_topic in {*topics, *self._steps}:
            reason = "dead.letter.topic is one of the topics: what fails would come back at once"
            raise ConfigError("dead.letter.topic", dead_letter_topic, reason)

    async def start(self, lent: Producer | None = None) -> None:
        """Connects, and looks for the topics, so that a misspelt one is told before any record fails.

        Args:
            lent: The producer of who writes what `place` returns; None: `hand_over` writes it, with a producer of its own.

        Raises:
            UnknownTopicOrPartitionError: One does not exist.
            ReplogError: No broker answers.
        """
        wanted = self.retry_topics if self._dead_letter_topic is None else [*self.retry_topics, self._dead_letter_topic]
        if not wanted:
            return
        producer = lent
        if producer is None:
            producer = self._producer = Producer(  # how large a record may be is for the topic to say
                self._servers,
                security=self._security,
                max_request_bytes=MAX_REQUEST_BYTES_MAX,
                buffer_memory_bytes=2 * MAX_REQUEST_BYTES_MAX,
            )
            await producer.start()
        for topic in wanted:
            await producer.partitions_for(topic)

    async def close(self) -> None:
        """Gives up what is not written: it is not committed, and will be done again."""
        if self._producer is not None:
            await self._producer.close(timeout_ms=0)

    def wait_s(self, record: ConsumerRecord) -> float:
        """Returns how long a record has to wait, in seconds; 0: it is no retry, or it is due.

        No longer than its delay from now, whatever the clock of its writer was.
        """
        step = self._steps.get(record.topic)
        if step is None:
            return 0.0
        return min(step.delay_s, max(0.0, record.timestamp / 1_000 + step.delay_s - time.time()))

    async def hand_over(self, record: ConsumerRecord, error: BaseException, attempts: int, *, is_final: bool) -> str:
        """Writes a record to where it goes now, and returns the name of that topic when all replicas have it.

        Args:
            record: The record, as it was read.
            error: The last error.
            attempts: The number of times that the handler was called now.
            is_final: Whether another attempt would be of no use.

        Raises:
            HandlerFailedError: There is nowhere to go.
            ReplogError: It could not be written.
        """
        letter, placed = self._letter(record, error, attempts, is_final=is_final)
        if self._producer is None:
            raise InvariantViolationError("a worker handed over a record before it had started")
        await (await self._producer.send(placed.topic, placed.value, placed.key, headers=placed.headers))
        self._tell(record, letter, placed.topic)
        return placed.topic

    def place(self, record: ConsumerRecord, error: BaseException, attempts: int, *, is_final: bool) -> ResultRecord:
        """Returns what is to be written in a transaction, and where.

        Args:
            record, error, attempts, is_final: As for `hand_over`.

        Raises:
            HandlerFailedError: There is nowhere to go.
        """
        letter, placed = self._letter(record, error, attempts, is_final=is_final)
        self._tell(record, letter, placed.topic)
        return placed

    def _letter(
        self, record: ConsumerRecord, error: BaseException, attempts: int, *, is_final: bool
    ) -> tuple[DeadLetter, ResultRecord]:
        step = self._steps.get(record.topic)
        letter = DeadLetter.of(record, self._group, error, attempts, is_retry=step is not None)
        later = self._first.get(record.topic) if step is None else step.next_topic
        topic = self._dead_letter_topic if is_final or later is None else later
        if topic is None:
            raise _nowhere_error(record, error, letter.attempts) from error
        headers = [*own_headers(record.headers), *letter.headers()]
        return letter, result_of(topic, record.value, record.key, headers)

    def _tell(self, record: ConsumerRecord, letter: DeadLetter, topic: str) -> None:
        place = (record.topic, record.partition, record.offset)
        if topic == self._dead_letter_topic:
            text = "%s-%d offset %d: given up after %d attempts (%s), and written to %s"
            _log.error(text, *place, letter.attempts, letter.error, topic)
        else:
            text = "%s-%d offset %d: failed %d times (%s), written to %s, and tried again in %g s"
            _log.warning(text, *place, letter.attempts, letter.error, topic, self._steps[topic].delay_s)


def _nowhere_error(record: ConsumerRecord, error: BaseException, attempts: int) -> HandlerFailedError:
    return HandlerFailedError(
        f"the handler failed on {record.topic}-{record.partition} offset {record.offset}, {attempts} times, last "
        f"with {error_text(error)}. Mend the handler and start the worker again, which begins there; or give it a "
        "dead_letter_topic",
        record.topic,
        record.partition,
        record.offset,
        attempts=attempts,
    )


def _checked(retry_delays: Iterable[float]) -> list[float]:
    """Returns the delays.  Raises: ConfigError: They are none, or too many."""
    if isinstance(retry_delays, (str, bytes)) or not isinstance(retry_delays, Iterable):
        raise ConfigError("retry.delays", retry_delays, "retry.delays must be seconds, such as [10, 60, 600]")
    delays = list(retry_delays)
    if len(delays) > DELAYS_MAX:
        raise ConfigError(
            "retry.delays", len(delays), f"retry.delays may be {DELAYS_MAX}, each with a topic of its own"
        )
    for delay_s in delays:
        require_at_least("retry.delays", delay_s, 0, DELAY_S_MAX, is_whole=False)
    return delays
