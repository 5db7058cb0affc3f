"""Transactions of a `SyncProducer`, whose loop is in another thread."""

from __future__ import annotations

import sys
import threading

import pytest
from fake_cluster import FakeCluster

from replog.client import GroupMetadata, SyncProducer, SyncTransaction
from replog.client.protocol.questions.transactions import DecideTransaction
from replog.errors import InvalidRequestError, TransactionAbortableError
from tests.interrupting import STEPS_MAX, interrupted_at


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.create_topic("t")
    return made


def make(cluster: FakeCluster) -> SyncProducer[bytes, str]:
    return SyncProducer(cluster.bootstrap, transport=cluster.transport(), transactional_id="pay", value=str)


def test_a_block_is_committed_or_aborted(cluster: FakeCluster) -> None:
    with make(cluster) as producer:
        with pytest.raises(KeyError), producer.transaction():
            producer.send("t", "gone").result()
            raise KeyError
        with producer.transaction() as txn:
            producer.send_many("t", ["a", "b"])
            producer.send("t", "c")
            txn.commit_offsets(GroupMetadata("g"), {("t", 0): 3})
    assert cluster.transactions.decided == [False, True]
    assert cluster.transactions.committed("t") == [b"a", b"b", b"c"]
    assert cluster.transactions.offsets == {("g", "t", 0): 3}


def test_two_threads_have_one_transaction_at_a_time(cluster: FakeCluster) -> None:
    refused: list[InvalidRequestError] = []

    def begin(producer: SyncProducer[bytes, str]) -> None:
        try:
            with producer.transaction():
                pass
        except InvalidRequestError as error:
            refused.append(error)

    with make(cluster) as producer, producer.transaction():
        thread = threading.Thread(target=begin, args=(producer,))
        thread.start()
        thread.join()
        producer.send("t", "kept")
    assert len(refused) == 1
    assert cluster.transactions.committed("t") == [b"kept"]


def test_an_interrupt_as_it_begins_leaves_none_open(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may have begun it when Ctrl-C comes to the caller: nobody would end it."""
    with make(cluster) as producer:
        carry_out = producer.carry_out

        def interrupted(work: object) -> object:
            monkeypatch.setattr(producer, "carry_out", carry_out)
            carry_out(work)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        transaction = producer.transaction()
        assert isinstance(transaction, SyncTransaction)
        monkeypatch.setattr(producer, "carry_out", interrupted)
        with pytest.raises(KeyboardInterrupt), transaction:
            pass
        with producer.transaction():
            producer.send("t", "kept")
    assert cluster.transactions.committed("t") == [b"kept"]


def test_an_interrupt_at_any_step_leaves_none_open(cluster: FakeCluster) -> None:
    """Its end must come to the loop, also where it is interrupted before it has begun there: but for the first step, before any `try`."""
    left_open: list[str] = []
    with make(cluster) as producer:
        producer.partitions_for("t")
        transaction = producer.transaction()

        def work() -> None:
            nonlocal transaction
            transaction = producer.transaction()
            with transaction:
                producer.send("t", f"at {number}")

        for number in range(1, STEPS_MAX):
            where = interrupted_at(number, work)
            if where is None:
                break
            try:
                with producer.transaction():
                    producer.send("t", f"after {number}")
            except InvalidRequestError:
                left_open.append(where)
                transaction.__exit__(None, None, None)
    at_its_beginning = (
        [] if sys.version_info >= (3, 12) else ["SyncTransaction.__exit__"]
    )  # 3.13 lets no signal in there, and the tracer of 3.12 is told of no step there
    assert [where.split(":")[0] for where in left_open] == at_its_beginning
    found = cluster.transactions.committed("t")
    assert len(found) == len(set(found)) >= 1


def test_what_fails_is_told_at_the_end_of_the_block(cluster: FakeCluster) -> None:
    with make(cluster) as producer:
        cluster.transactions.script[DecideTransaction].append(TransactionAbortableError("not this one"))
        with pytest.raises(TransactionAbortableError, match="not this one"), producer.transaction():
            producer.send("t", "gone").result()
    assert cluster.transactions.committed("t") == []
