"""What clients of transactions wrote down (`transaction_client`), as a history that can be checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from replog_chaos.transaction_history import RecordedTransaction, TransactionHistory, TransactionOutcome


class Life(NamedTuple):
    """One process of a client: its name, which is the transactional id or the reader's, and the lines it wrote."""

    name: str
    lines: Sequence[str]


class _Begun(NamedTuple):
    """The lines of one transaction, and when it began."""

    at: int
    transactional_id: str
    lines: Sequence[Sequence[str]]


def history_of(lives: Iterable[Life]) -> TransactionHistory:
    """Returns what all processes did, in the order of time."""
    history = TransactionHistory()
    known = list(lives)
    begun = sorted((each for life in known for each in _transactions(life)), key=lambda each: each.at)
    for each in begun:
        _note(history, history.begin(each.transactional_id), each.lines)
    for number, life in enumerate(known):
        for words in map(str.split, life.lines):
            if words[0] == "read":
                at, topic, partition, offset, value = words[1:]
                place = (topic, int(partition))
                history.poll(f"{life.name} {number}", place, [(int(offset), value.encode())], int(at))
    return history


def count_of(lives: Iterable[Life]) -> Mapping[str, int]:
    """Returns how many lines of each kind there are, `end committed` and `end aborted` apart."""
    found: dict[str, int] = {}
    for life in lives:
        for line in life.lines:
            word = line if line.startswith("end ") else line.partition(" ")[0]
            found[word] = found.get(word, 0) + 1
    return found


def may_start_again(life: Life) -> bool:
    """Whether a process has ended for a reason that it wrote down, so that another one may take its place."""
    return bool(life.lines) and life.lines[-1].startswith(("fenced", "stuck"))


def _transactions(life: Life) -> Iterator[_Begun]:
    lines = [line.split() for line in life.lines]
    starts = [number for number, words in enumerate(lines) if words[0] == "begin"]
    for start, end in pairwise([*starts, len(lines)]):
        yield _Begun(int(lines[start][1]), life.name, lines[start + 1 : end])


def _note(history: TransactionHistory, transaction: RecordedTransaction, lines: Iterable[Sequence[str]]) -> None:
    """Notes the steps of a transaction.  One whose commit nobody has asked for cannot have been committed."""
    transaction.outcome = TransactionOutcome.ABORTED
    for words in lines:
        if words[0] == "write":
            topic, partition, value, *source = words[1:]
            taken = ((source[0], int(source[1])), int(source[2])) if source else None
            transaction.append((topic, int(partition)), value.encode(), taken)
        elif words[0] == "ask":
            history.ask_commit(transaction, int(words[1]))
            transaction.outcome = TransactionOutcome.UNKNOWN
        elif words[0] == "end":
            transaction.outcome = TransactionOutcome(words[1])
