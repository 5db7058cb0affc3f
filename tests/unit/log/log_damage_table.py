"""What becomes of every damaged file: the table of docs/RECOVERY.md, as data.

One line for a file after one kind of stop, one column for a damage.  The test does every damage in many forms; all outcomes
of a cell must occur, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from log_crash_kit import DATA, FOLDER
from log_damage_kit import DAMAGES, Outcome

CODES = {
    "i": Outcome.IGNORED,
    "r": Outcome.REBUILT,
    "c": Outcome.TAIL_CUT,
    "q": Outcome.QUARANTINED,
    "R": Outcome.REFUSED,
    "f": Outcome.FOUND_WHEN_READ,
    "b": Outcome.BELIEVED,
}


@dataclass(frozen=True)
class Row:
    """One file: what it is, where it is on the test's machine, and a cell for each of `DAMAGES`."""

    title: str
    path: str
    stop: str
    cells: tuple[str, ...]

    def expected(self, damage: str) -> set[Outcome]:
        return {CODES[code] for code in self.cells[DAMAGES.index(damage)] if code != "-"}


_TITLES = {
    "0.log": ".log, sealed, below the recovery point",
    "12.log": ".log, sealed, holds the recovery point",
    "23.log": ".log, active",
    "0.index": ".index, sealed",
    "12.index": ".index, beside the recovery point",
    "23.index": ".index, active",
    "0.timeindex": ".timeindex, sealed",
    "12.timeindex": ".timeindex, beside the recovery point",
    "23.timeindex": ".timeindex, active",
    "12.txnindex": ".txnindex",
    "12.txnwitness": ".txnwitness",
    "12.snapshot": ".snapshot, older",
    "30.snapshot": ".snapshot, newest",
    "23.snapshot": ".snapshot, at the active segment",
}

_LINES = """
# A stop is clean, unclean, or unclean after an fsync that no checkpoint knows of ("flushed": only files whose line differs)
# stop  file  truncated  zero-filled  bit-flipped  garbage-appended  empty  from-the-future  missing  a-directory  unreadable
clean   .kafka_cleanshutdown              r    r    r    r    r    r    r    R    R
clean   complete-from                     -    r    -    r    -    -    i    q    r
clean   cleaner-offset-checkpoint         i    i    ir   i    i    i    i    R    R
clean   log-start-offset-checkpoint       R    R    qR   R    R    R    r    R    R
clean   log-start-offset-witness          r    r    r    r    r    -    r    R    R
clean   meta.properties                   R    R    irR  iR   R    R    R    R    R
clean   recovery-point-offset-checkpoint  R    R    rqR  R    R    R    r    R    R
clean   replication-offset-checkpoint     R    R    iR   R    R    R    i    R    R
clean   replication-offset-witness        i    i    i    i    i    -    i    R    R
clean   0.index                           ir   i    i    ir   i    -    r    q    q
clean   0.log                             q    fq   ifqb q    q    q    q    q    q
clean   0.timeindex                       ir   i    i    ir   r    -    r    q    q
clean   12.index                          ir   i    i    ir   i    -    r    q    q
clean   12.log                            q    fq   fqb  q    q    q    q    q    q
clean   12.snapshot                       i    i    i    i    i    i    i    i    i
clean   12.timeindex                      ir   i    i    ir   r    -    r    q    q
clean   12.txnindex                       r    r    r    r    r    -    r    q    q
clean   12.txnwitness                     r    r    r    r    r    -    i    q    q
clean   23.index                          ir   i    ir   ir   i    -    r    q    q
clean   23.log                            q    q    fqb  r    q    q    q    q    q
clean   23.snapshot                       i    i    i    i    i    i    i    i    i
clean   23.timeindex                      ir   ir   ir   ir   r    -    r    q    q
clean   30.snapshot                       r    r    r    r    r    r    i    q    q
clean   flushed-offset                    r    r    r    i    r    r    i    q    q
clean   leader-epoch-checkpoint           r    r    ir   r    r    r    r    q    q
clean   partition.metadata                q    q    rq   q    q    q    r    q    q
unclean complete-from                     -    r    -    r    -    -    i    q    r
unclean cleaner-offset-checkpoint         i    i    ir   i    i    i    i    R    R
unclean log-start-offset-checkpoint       R    R    rqR  R    R    R    r    R    R
unclean log-start-offset-witness          r    r    r    r    r    -    r    R    R
unclean meta.properties                   R    R    irR  iR   R    R    R    R    R
unclean recovery-point-offset-checkpoint  R    R    irqR R    R    R    r    R    R
unclean replication-offset-checkpoint     R    R    iR   R    R    R    i    R    R
unclean replication-offset-witness        i    i    i    i    i    -    i    R    R
unclean 0.index                           ir   i    i    ir   i    -    r    q    q
unclean 0.log                             q    fq   ifqb q    q    q    q    q    q
unclean 0.timeindex                       ir   i    i    ir   r    -    r    q    q
unclean 12.index                          r    r    r    r    r    -    r    q    q
unclean 12.log                            cq   cq   cq   c    q    q    q    q    q
unclean 12.snapshot                       i    i    i    i    i    i    i    q    q
unclean 12.timeindex                      r    r    r    r    r    -    r    q    f
unclean 12.txnindex                       r    r    r    r    r    -    r    q    f
unclean 12.txnwitness                     r    r    r    r    r    -    r    q    f
unclean 23.log                            c    c    cb   r    c    c    c    q    q
unclean 23.snapshot                       r    r    r    r    r    r    r    q    q
unclean flushed-offset                    r    r    r    r    r    r    r    q    q
unclean leader-epoch-checkpoint           r    r    ir   r    r    r    r    q    q
unclean partition.metadata                q    q    rq   q    q    q    r    q    q
flushed log-start-offset-checkpoint       R    R    rqR  R    R    R    r    R    R
flushed recovery-point-offset-checkpoint  R    R    irqR R    R    R    r    R    R
flushed 0.log                             q    fq   ifqb q    q    q    q    q    q
flushed 12.log                            q    q    q    q    q    q    q    q    q
flushed 23.log                            q    q    q    r    q    q    q    q    q
flushed flushed-offset                    r    r    r    i    r    r    r    q    q
"""


def _row(line: str) -> Row:
    stop, name, *cells = line.split()
    base, _, suffix = name.partition(".")
    if base.isdigit():
        return Row(_TITLES[name], f"{FOLDER}/{int(base):020d}.{suffix}", stop, tuple(cells))
    in_folder = {"complete-from", "flushed-offset", "leader-epoch-checkpoint", "partition.metadata"}
    folder = FOLDER if name in in_folder else DATA
    return Row(name, f"{folder}/{name}", stop, tuple(cells))


ROWS = tuple(_row(line) for line in _LINES.strip().splitlines() if not line.startswith("#"))


def as_markdown() -> str:
    """The table as it stands in docs/RECOVERY.md."""
    lines = [f"| file | stop | {' | '.join(DAMAGES)} |", "|---" * (len(DAMAGES) + 2) + "|"]
    for row in ROWS:
        cells = (", ".join(CODES[code].value for code in cell if code != "-") or "-" for cell in row.cells)
        lines.append(f"| {row.title} | {row.stop} | {' | '.join(cells)} |")
    return "\n".join(lines)
