"""What becomes of a transactional id: pure functions from what the log says of it to what it is to say.

Where Kafka refuses because a change is under way, nothing is refused here: a change is made from the newest state, and its
answer leaves when all of that has committed (docs/KAFKA.md 9.1).  So `ConcurrentTransactionsError` is only told while markers are
written.

Producer epochs end at 32,767, which no producer is told: it fences the last one that has been.  A producer that comes to its
end gets another producer id with epoch 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from replog.coordinator.transactions.records import EPOCH_BUMPS_VERSION, TransactionStatus, WrittenTransaction
from replog.coordinator.transactions.requests import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddPartitions,
    EndTransaction,
    Incarnation,
    InitProducer,
    TransactionPartition,
)
from replog.coordinator.transactions.state import NO_TIMEOUT_MS
from replog.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)

EPOCH_MAX: Final = 2**15 - 1
"""Told to nobody."""
LAST_EPOCH_TOLD: Final = EPOCH_MAX - 1

_NO_START_MS: Final = -1
_OF_COMMIT: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)


def status_of(value: WrittenTransaction) -> TransactionStatus:
    """Returns where the transaction is."""
    return TransactionStatus(value.transaction_status)


def incarnation_of(value: WrittenTransaction) -> Incarnation:
    """Returns the producer with its epoch."""
    return Incarnation(value.producer_id, value.producer_epoch)


def is_commit(value: WrittenTransaction) -> bool:
    """Whether the transaction has been committed, or is being."""
    return status_of(value) in _OF_COMMIT


def bumps_epochs(value: WrittenTransaction) -> bool:
    """Whether the producer gets another epoch at the end of each transaction."""
    return value.client_transaction_version >= EPOCH_BUMPS_VERSION


def partitions_of(value: WrittenTransaction) -> tuple[TransactionPartition, ...]:
    """Returns the partitions of the transaction."""
    topics = value.transaction_partitions or ()
    return tuple(TransactionPartition(each.topic, one) for each in topics for one in each.partition_ids)


def producer_after(value: WrittenTransaction) -> Incarnation:
    """Returns what the producer writes with behind the end of a transaction that is decided."""
    if bumps_epochs(value) and value.next_producer_id != NO_PRODUCER_ID:
        return Incarnation(value.next_producer_id, 0)
    return incarnation_of(value)


def _moved(value: WrittenTransaction, now_ms: int, **changes: Any) -> WrittenTransaction:
    """Returns what follows; the producer id before this one is known to the next change alone."""
    kept: dict[str, Any] = {
        "previous_producer_id": NO_PRODUCER_ID,
        "transaction_last_update_timestamp_ms": now_ms,
        **changes,
    }
    return replace(value, **kept)


# ---- producers -------------------------------------------------------------------------------------------------------


def first_of(request: InitProducer, now_ms: int) -> WrittenTransaction:
    """Returns a transactional id that nobody has had."""
    return WrittenTransaction(
        producer_id=request.spare_producer_id,
        transaction_timeout_ms=request.timeout_ms,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=now_ms,
        transaction_start_timestamp_ms=_NO_START_MS,
    )


def check_may_take_over(value: WrittenTransaction, known: Incarnation | None) -> None:
    """Checks that whoever takes over a transactional id has not been fenced.

    Raises:
        ConcurrentTransactionsError: Markers of its transaction are being written.
        ProducerFencedError: Another producer has taken it over since.
    """
    status = status_of(value)
    if status.is_decided:
        raise _concurrent()
    if known is None or known == incarnation_of(value):
        return
    is_before = known.producer_epoch == value.last_producer_epoch != NO_PRODUCER_EPOCH
    is_renamed = known.producer_id == value.previous_producer_id and known.producer_epoch >= LAST_EPOCH_TOLD
    if (
        status is TransactionStatus.ONGOING
        or not is_before
        or not (known.producer_id == value.producer_id or is_renamed)
    ):
        raise ProducerFencedError(
            f"producer {known.producer_id} with epoch {known.producer_epoch} has been fenced: another one has taken over its "
            "transactional id; stop this one"
        )


def taken_over(value: WrittenTransaction, request: InitProducer, now_ms: int) -> WrittenTransaction:
    """Returns a transactional id at rest when a producer has taken it over that may.

    A producer that asks again because it has not heard the answer (KIP-360) gets the same one, unless that is an epoch that
    nobody is told: it was fenced at its end.
    """
    is_retry = request.known is not None and request.known != incarnation_of(value)
    last_epoch = NO_PRODUCER_EPOCH if request.known is None else request.known.producer_epoch
    changes: dict[str, Any] = {
        "transaction_status": TransactionStatus.EMPTY,
        "transaction_timeout_ms": request.timeout_ms,
        "transaction_partitions": None,
        "transaction_start_timestamp_ms": _NO_START_MS,
        "last_producer_epoch": last_epoch,
    }
    if value.producer_epoch >= (EPOCH_MAX if is_retry else LAST_EPOCH_TOLD):
        changes |= {
            "producer_id": request.spare_producer_id,
            "producer_epoch": 0,
            "previous_producer_id": value.producer_id,
        }
    elif is_retry:
        changes |= {"previous_producer_id": value.previous_producer_id}
    else:
        changes |= {"producer_epoch": value.producer_epoch + 1}
    return _moved(value, now_ms, **changes)


# ---- transactions ----------------------------------------------------------------------------------------------------


def check_may_add(value: WrittenTransaction, request: AddPartitions) -> None:
    """Checks that a producer has an open transaction, or may begin one.

    Raises:
        ConcurrentTransactionsError: The markers of the last one are being written.
        InvalidProducerIdMappingError: The transactional id has another producer id.
        ProducerFencedError: It has another epoch.
    """
    is_decided = status_of(value).is_decided
    if is_decided and not request.only_verifies:
        raise _concurrent()  # before all else: the producer may know the id that it gets behind this end
    _check_producer_id(value, request.producer)
    if request.producer.producer_epoch != value.producer_epoch or value.producer_epoch == EPOCH_MAX:
        raise _fenced(value, request.producer)
    if is_decided:
        raise _concurrent()


def absent(value: WrittenTransaction, partitions: Sequence[TransactionPartition]) -> tuple[TransactionPartition, ...]:
    """Returns those of some partitions that are no part of the open transaction, each once."""
    asked = {each.topic for each in partitions}
    has = {each.topic: set(each.partition_ids) for each in _open_partitions(value) if each.topic in asked}
    return tuple(each for each in dict.fromkeys(partitions) if each.partition not in has.get(each.topic, ()))


def _open_partitions(value: WrittenTransaction) -> Sequence[WrittenTransaction.PartitionsSchema]:
    return (value.transaction_partitions or ()) if status_of(value) is TransactionStatus.ONGOING else ()


def with_partitions(
    value: WrittenTransaction, added: Sequence[TransactionPartition], *, bumps: bool, now_ms: int, timeout_ms_max: int
) -> WrittenTransaction:
    """Returns a transactional id whose open transaction has more partitions; it begins with the first ones.

    That the transaction before was prepared is nothing to the one that begins: its time-out ends it.
    """
    by_topic = {each.topic: list(each.partition_ids) for each in _open_partitions(value)}
    for each in added:
        by_topic.setdefault(each.topic, []).append(each.partition)
    is_open = status_of(value) is TransactionStatus.ONGOING
    return _moved(
        value,
        now_ms,
        transaction_status=TransactionStatus.ONGOING,
        transaction_partitions=[WrittenTransaction.PartitionsSchema(*each) for each in by_topic.items()],
        transaction_start_timestamp_ms=value.transaction_start_timestamp_ms if is_open else now_ms,
        transaction_timeout_ms=value.transaction_timeout_ms
        if is_open
        else min(value.transaction_timeout_ms, timeout_ms_max),
        client_transaction_version=EPOCH_BUMPS_VERSION if bumps else 0,
    )


def prepared(value: WrittenTransaction, asked: Incarnation, now_ms: int) -> WrittenTransaction | None:
    """Returns a transactional id whose open transaction no time-out ends (KIP-939 has such ones from their beginning).

    Returns:
        What it becomes; None where it is so already.

    Raises:
        InvalidProducerIdMappingError: The transactional id has another producer id.
        ProducerFencedError: It has another epoch: the time-out may have come first.
        InvalidTxnStateError: There is no open transaction.
    """
    _check_producer_id(value, asked)
    if asked.producer_epoch != value.producer_epoch:
        raise _fenced(value, asked)
    if status_of(value) is not TransactionStatus.ONGOING:
        raise InvalidTxnStateError(
            f"the transaction of producer {asked.producer_id} cannot be prepared: none is open; begin a new one"
        )
    if value.transaction_timeout_ms == NO_TIMEOUT_MS:
        return None
    return _moved(value, now_ms, transaction_timeout_ms=NO_TIMEOUT_MS)


def check_may_forget(transactional_id: str, value: WrittenTransaction) -> None:
    """Checks that a transactional id has no transaction.

    Raises:
        ConcurrentTransactionsError: Markers are being written.
        InvalidTxnStateError: One is open.
    """
    if status_of(value).is_decided:
        raise _concurrent()
    if status_of(value) is TransactionStatus.ONGOING:
        raise InvalidTxnStateError(
            f"transactional id {transactional_id!r} cannot be forgotten, since it has an open transaction: end that first"
        )


# ---- ends ------------------------------------------------------------------------------------------------------------


def ended(value: WrittenTransaction, request: EndTransaction, now_ms: int) -> WrittenTransaction | None:
    """Returns a transactional id whose transaction is decided.

    Returns:
        What it becomes; None where it has ended so already, and the producer has not heard it.

    Raises:
        InvalidProducerIdMappingError: The transactional id has another producer id.
        ProducerFencedError: It has another epoch.
        ConcurrentTransactionsError: Markers are being written.
        InvalidTxnStateError: There is no transaction that could end so.
    """
    if request.bumps_epochs:
        return _ended_with_bump(value, request, now_ms)
    _check_producer_id(value, request.producer)
    if request.producer.producer_epoch != value.producer_epoch:
        raise _fenced(value, request.producer)
    status = status_of(value)
    if status.is_decided:
        raise _concurrent()
    if status is TransactionStatus.ONGOING:
        return _decided(value, request, now_ms)
    if status is TransactionStatus.EMPTY or is_commit(value) is not request.is_commit:
        raise _no_such_end(status, request)
    return None


def _ended_with_bump(value: WrittenTransaction, request: EndTransaction, now_ms: int) -> WrittenTransaction | None:
    """Returns what follows where each end bumps the epoch: whoever repeats an end has the epoch before (KIP-890).

    A producer that does not know whether its transaction has begun may abort it, so an abort is taken also where none is open.
    """
    status, asked = status_of(value), request.producer
    if status.is_decided:
        raise _concurrent()  # before all else: the producer may know the id that it gets behind this end
    is_retry = _is_retry(value, asked)
    if not is_retry:
        _check_producer_id(value, asked)
        if asked.producer_epoch != value.producer_epoch or value.producer_epoch == EPOCH_MAX:
            raise _fenced(value, asked)
    if status is TransactionStatus.ONGOING or (not is_retry and not request.is_commit):
        return _decided(value, request, now_ms)
    if not is_retry or is_commit(value) is not request.is_commit:
        raise _no_such_end(status, request)
    # at the end of its epochs, the coordinator has aborted what was open: the producer is not told that epoch, but another id
    return _decided(value, request, now_ms) if value.producer_epoch == EPOCH_MAX else None


def _is_retry(value: WrittenTransaction, asked: Incarnation) -> bool:
    """Whether a producer may repeat the end that came last: nobody else has had the transactional id since."""
    if status_of(value) not in {TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT}:
        return False
    if asked.producer_id == value.producer_id:
        return asked.producer_epoch + 1 == value.producer_epoch
    return (
        asked.producer_id == value.previous_producer_id
        and asked.producer_epoch == LAST_EPOCH_TOLD
        and value.producer_epoch == 0
    )


def _decided(value: WrittenTransaction, request: EndTransaction, now_ms: int) -> WrittenTransaction:
    status = TransactionStatus.PREPARE_COMMIT if request.is_commit else TransactionStatus.PREPARE_ABORT
    changes: dict[str, Any] = {"transaction_status": status, "client_transaction_version": 0}
    if request.bumps_epochs:
        is_last = value.producer_epoch >= LAST_EPOCH_TOLD
        changes |= {
            "client_transaction_version": EPOCH_BUMPS_VERSION,
            "producer_epoch": min(value.producer_epoch + 1, EPOCH_MAX),
            "last_producer_epoch": min(value.producer_epoch, LAST_EPOCH_TOLD),
            "next_producer_id": request.spare_producer_id if is_last else NO_PRODUCER_ID,
        }
    if status_of(value) is not TransactionStatus.ONGOING:
        changes |= {"transaction_start_timestamp_ms": now_ms, "transaction_partitions": []}
    return _moved(value, now_ms, **changes)


def fenced(value: WrittenTransaction, transaction_version: int, now_ms: int) -> WrittenTransaction:
    """Returns a transactional id whose open transaction is aborted by its coordinator, with an epoch that no producer has.

    With bumped epochs the producer may find out and go on; without them, it is fenced for good.
    """
    epoch = min(value.producer_epoch + 1, EPOCH_MAX)
    bumps = transaction_version >= EPOCH_BUMPS_VERSION and epoch > value.producer_epoch
    return _moved(
        value,
        now_ms,
        transaction_status=TransactionStatus.PREPARE_ABORT,
        producer_epoch=epoch,
        last_producer_epoch=value.producer_epoch if bumps else NO_PRODUCER_EPOCH,
        client_transaction_version=EPOCH_BUMPS_VERSION if bumps else 0,
    )


def completed(value: WrittenTransaction, now_ms: int) -> WrittenTransaction:
    """Returns a transactional id when all partitions of its decided transaction have their marker."""
    after = producer_after(value)
    is_renamed = after.producer_id != value.producer_id
    return _moved(
        value,
        now_ms,
        transaction_status=TransactionStatus.COMPLETE_COMMIT if is_commit(value) else TransactionStatus.COMPLETE_ABORT,
        transaction_partitions=[],
        producer_id=after.producer_id,
        producer_epoch=after.producer_epoch,
        previous_producer_id=value.producer_id if is_renamed else NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
    )


# ---- refusals --------------------------------------------------------------------------------------------------------


def _check_producer_id(value: WrittenTransaction, asked: Incarnation) -> None:
    if asked.producer_id != value.producer_id:
        raise InvalidProducerIdMappingError(
            f"the transactional id has producer id {value.producer_id}, not {asked.producer_id}: another producer has taken it "
            "over, or it had expired; begin with InitProducerId"
        )


def _fenced(value: WrittenTransaction, asked: Incarnation) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {value.producer_id} has epoch {value.producer_epoch}, not {asked.producer_epoch}: another producer has taken "
        "over the transactional id, or the transaction took too long; stop this one, or begin with InitProducerId"
    )


def _concurrent() -> ConcurrentTransactionsError:
    return ConcurrentTransactionsError("the end of the last transaction is being written; ask again a little later")


def _no_such_end(status: TransactionStatus, request: EndTransaction) -> InvalidTxnStateError:
    wanted = "committed" if request.is_commit else "aborted"
    return InvalidTxnStateError(f"no transaction is open that could be {wanted}: the last status is {status.name}")
