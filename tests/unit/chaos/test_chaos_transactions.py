"""What clients of transactions write down becomes a history, and what is wrong in it is found."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from replog.errors import RequestTimedOutError
from replog_chaos import transactions
from replog_chaos.fault import Fault
from replog_chaos.transaction_history import TransactionHistory, TransactionOutcome
from replog_chaos.transaction_lines import Life, count_of, history_of, may_start_again

X, Y = ("x", 0), ("y", 1)
WHOLE = Life("writer", ["ready", "begin 10", "write x 0 a", "write y 1 b", "ask 20", "end committed"])


def anomalies(*lives: Life, x: str = "", y: str = "") -> list[str]:
    """Returns the anomalies of what clients wrote, where these single letters are read at the end."""
    return kinds(history_of(lives), x, y)


def kinds(history: TransactionHistory, x: str, y: str) -> list[str]:
    history.final_read(X, [(number, letter.encode()) for number, letter in enumerate(x)])
    history.final_read(Y, [(number, letter.encode()) for number, letter in enumerate(y)])
    return [str(each.kind) for each in history.check()]


def test_a_transaction_that_is_read_after_its_commit_was_asked_for() -> None:
    assert anomalies(WHOLE, Life("reader", ["read 21 x 0 0 a"]), x="a", y="b") == []


def test_a_read_before_that() -> None:
    assert anomalies(WHOLE, Life("reader", ["read 19 x 0 0 a"]), x="a", y="b") == ["intermediate_read"]


def test_half_of_a_transaction() -> None:
    assert anomalies(WHOLE, x="a") == ["torn_transaction"]


@pytest.mark.parametrize("end", [[], ["end aborted"]])
def test_what_was_aborted_or_never_asked_for_must_not_be_there(end: list[str]) -> None:
    assert anomalies(Life("writer", ["begin 10", "write x 0 a", *end]), x="a") == ["aborted_read"]
    assert anomalies(Life("writer", ["begin 10", "write x 0 a", *end])) == []


def test_a_client_that_was_killed_in_a_commit_may_have_committed() -> None:
    killed = Life("writer", ["begin 10", "write x 0 a", "ask 20"])
    assert history_of([killed]).count(TransactionOutcome.UNKNOWN) == 1
    assert anomalies(killed, x="a") == []
    assert anomalies(killed) == []


def test_lives_of_one_client_are_in_the_order_of_time() -> None:
    second = Life("writer", ["begin 30", "write x 0 c", "ask 31", "end committed"])
    assert anomalies(second, WHOLE, x="ac", y="b") == []
    assert anomalies(second, WHOLE, x="ca", y="b") == ["write_cycle"]


def test_inputs_that_were_passed_on_twice() -> None:
    chain = Life(
        "chain",
        [
            *("begin 30", "write y 1 A x 0 0", "ask 31", "end committed"),
            *("begin 32", "write y 1 B x 0 0", "ask 33", "end committed"),
        ],
    )
    source = Life("writer", ["begin 10", "write x 0 a", "ask 11", "end committed"])
    history = history_of([source, chain])
    history.final_offset(X, 1)
    assert kinds(history, x="a", y="AB") == ["input_twice"]


def test_each_life_of_a_reader_begins_anew() -> None:
    lives = [Life("reader", ["read 21 x 0 0 a"]), Life("reader", ["read 22 x 0 0 a"])]
    assert anomalies(WHOLE, *lives, x="a", y="b") == []


def test_lines_are_counted() -> None:
    assert count_of([WHOLE, Life("w", ["begin 1", "end aborted", "fenced by another"])]) == {
        "ready": 1,
        "begin": 2,
        "write": 2,
        "ask": 1,
        "end committed": 1,
        "end aborted": 1,
        "fenced": 1,
    }


STUCK = """
import threading
from types import SimpleNamespace
from replog_chaos.transaction_client import TransactionalWork
calls = []
def send(places, metadata, timeout_s):
    calls.append(places)
    if len(calls) > 1:
        threading.Event().wait()
consumer = SimpleNamespace(consumer_group_metadata=dict)
work = TransactionalWork(SimpleNamespace(send_offsets_to_transaction=send), "chain", stuck_s=0.5)
work.send_offsets({("x", 0): 1}, consumer)
print("sent", flush=True)
work.send_offsets({("x", 0): 2}, consumer)
"""


def test_a_client_whose_call_does_not_come_back_ends_and_says_so() -> None:
    pytest.importorskip("confluent_kafka", reason="the clients need confluent-kafka")
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["sent", "stuck offsets have not been sent within 0.5 s"], done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("last", ["fenced by another", "stuck offsets have not been sent within 30 s"])
def test_a_client_that_says_why_it_has_ended_may_be_started_again(last: str) -> None:
    assert may_start_again(Life("chain", ["ready", "begin 1", last]))


@pytest.mark.parametrize("lines", [[], ["ready"], ["stuck a call", "begin 1"]])
def test_one_that_does_not_say_it_has_a_bug(lines: list[str]) -> None:
    assert not may_start_again(Life("chain", lines))


async def test_a_fault_that_does_not_come_about_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def never(_target: object) -> AsyncIterator[list[int]]:
        await asyncio.Event().wait()
        yield []

    monkeypatch.setattr(transactions, "PATIENCE_S", 0.01)
    with pytest.raises(RequestTimedOutError, match="an old node is gone"):
        async with asyncio.timeout(30):
            await transactions.happen(Fault("an old node is gone", never), cast("Any", None))
