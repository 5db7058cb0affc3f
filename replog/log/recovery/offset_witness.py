"""A second witness of the offsets in a checkpoint: a digit that flips in one makes another offset, a valid one.

| checkpoint                      | what a higher offset would do                                                         |
|---------------------------------|---------------------------------------------------------------------------------------|
| `log-start-offset-checkpoint`   | hide acknowledged records, and the next retention deletes them                         |
| `replication-offset-checkpoint` | show records before they are committed, until the replicas have said what they have    |
| `given-up-offset-checkpoint`    | nothing; but another name lets a replica lead whose records a repair gave up           |

Nothing else on disk says the same.  Kafka's files have no checksum and stay as Kafka has them, so another one stands beside
each of the three::

    data/log-start-offset-witness     1                     version
                                      8d1f03c6              CRC-32C of the lines that follow
                                      flights 3 40 57       the checkpoint says 40 or 57 of flights-3
                                      flights 4 - 12        it says 12, or has no line of flights-4

It is written before the checkpoint, with the old offset in it and the new one, so the two never contradict each other.  The next
time that checkpoints are written, the old offset is forgotten.

| what happened                                   | what the next start finds                                             |
|-------------------------------------------------|-----------------------------------------------------------------------|
| crash before, between, or behind the two writes | the checkpoint says what this file names                              |
| a bit flips in the checkpoint                   | it says something else of a replica: that replica alone is refused, or its high watermark unknown |
| a bit flips here, the file is cut or gone       | nothing is known; the checkpoint is believed, and this is made anew   |
| Kafka, an older replog or a tool wrote the same | the same offsets, replica by replica: no doubt                        |
| they wrote others                               | the same: it looks like damage; the error says what to delete           |
| the checkpoint is gone                          | the lowest offset that this names counts, and what may be given up is; it is made anew |
| both are gone                                   | logs start with their first segments, high watermarks are unknown: nothing is hidden |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final, TypeAlias

import replog_checkpoints as checkpoints
from replog.errors import CorruptCheckpointError
from replog.log.file_names import partition_dir_name
from replog.records._crc32c import crc32c
from replog_checkpoints import FileSystem, TopicPartition, parent_of

GIVEN_UP_FILE: Final = "given-up-offset-checkpoint"
"""The replicas whose repair gave records up, each with the exclusive end of its records."""

WITNESS_FILES: Final[Mapping[str, str]] = {
    checkpoints.LOG_START_OFFSET_FILE: "log-start-offset-witness",
    checkpoints.REPLICATION_OFFSET_FILE: "replication-offset-witness",
    GIVEN_UP_FILE: "given-up-offset-witness",
}
"""The witness of each checkpoint that has one."""

_VERSION: Final = b"1"
_SIZE_BYTES_MAX: Final = 1 << 29  # twice that of a checkpoint
_NO_LINE: Final = "-"

Starts: TypeAlias = frozenset[int | None]
"""The values that a checkpoint may have for one replica; None: it has no line of it."""

_NOTHING: Final[Starts] = frozenset([None])


class OffsetWitness:
    """The file of one directory, with the values that the checkpoint beside it may have.

    Invariants:
        - after any crash, a checkpoint that only this writes has a value that the file names.

    Args:
        fs: The disk.
        checkpoint_path: Path of the checkpoint that it stands beside.
    """

    def __init__(self, fs: FileSystem, checkpoint_path: str) -> None:
        self._fs = fs
        self._checkpoint_path = checkpoint_path
        self._path = witness_path(checkpoint_path)
        self._possible: dict[
            TopicPartition, Starts
        ] = {}  # values that the checkpoint may have, as far as it was written here
        self._doubted: dict[TopicPartition, tuple[int | None, Starts]] = {}  # its value, and the right one
        self._written: bytes | None = None
        self._is_exact = False

    @property
    def is_written(self) -> bool:
        """Whether there is such a file, and it can be read."""
        return self._written is not None

    @property
    def is_exact(self) -> bool:
        """Whether it names one start of each replica: it need not name the one before any more."""
        return self._is_exact

    def read(self, found: Mapping[TopicPartition, int] | None) -> Mapping[TopicPartition, int]:
        """Compares the file with the checkpoint.

        Args:
            found: The offsets in the checkpoint; None: there is no such file.

        Returns:
            The offsets that count: those of the checkpoint, or where it is gone those that this names.

        Raises:
            OSError: The disk failed.
        """
        self._possible = {key: frozenset([offset]) for key, offset in (found or {}).items()}
        named = read_witness(self._fs, self._path)
        if named is None:
            return found or {}
        self._written = _format(named)
        if found is not None:
            self._doubted = {
                key: (found.get(key), named.get(key, _NOTHING))
                for key in {*found, *named}
                if found.get(key) not in named.get(key, _NOTHING)
            }
        self._is_exact = all(len(starts) == 1 for key, starts in named.items() if key not in self._doubted)
        return _instead(self._checkpoint_path, named) if found is None else found

    def require_same(self, key: TopicPartition) -> None:
        """Raises where the checkpoint of log starts and this file contradict each other about a replica.

        Raises:
            CorruptCheckpointError: One of the two is damaged, or another program has written the checkpoint.
        """
        if key in self._doubted:
            raise doubtful_start(self._checkpoint_path, key, *self._doubted[key])

    def doubts(self, key: TopicPartition) -> bool:
        """Whether the checkpoint and this file contradict each other about a replica."""
        return key in self._doubted

    def settle(self, key: TopicPartition) -> None:
        """Ends the doubt about a replica: it was decided, or the replica is gone.  The file says so when it is written next."""
        if self._doubted.pop(key, None) is not None:
            self._is_exact = False

    def announce(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Notes, durably, the new values of the checkpoint beside the present ones; to be called before it is written.

        A doubt stays until the checkpoint has another value for the replica.

        Raises:
            OSError: Nothing was noted: the checkpoint must not be written.
        """
        self._doubted = {key: doubt for key, doubt in self._doubted.items() if offsets.get(key) == doubt[0]}
        for key in {*self._possible, *offsets}:
            self._possible[key] = self._possible.get(key, _NOTHING) | {offsets.get(key)}
        data = _format({**self._possible, **{key: named for key, (_, named) in self._doubted.items()}})
        if data != self._written:
            checkpoints.replace_file(self._fs, self._path, data)
            self._written = data
        self._is_exact = all(len(starts) == 1 for key, starts in self._possible.items() if key not in self._doubted)

    def confirm(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Notes that the checkpoint durably has these values; the ones before cannot come back."""
        self._possible = {key: frozenset([offset]) for key, offset in offsets.items()}


def read_witnessed(fs: FileSystem, checkpoint_path: str) -> Mapping[TopicPartition, int]:
    """Reads a checkpoint; one that is gone is replaced by what the witness beside it names.

    Raises:
        CorruptCheckpointError: The checkpoint cannot be read; the error is the leaf library's.
        OSError: The disk failed.
    """
    found = checkpoints.read_offset_checkpoint(fs, checkpoint_path)
    if found is not None:
        return found
    return _instead(checkpoint_path, read_witness(fs, witness_path(checkpoint_path)) or {})


def _instead(checkpoint_path: str, named: Mapping[TopicPartition, Starts]) -> dict[TopicPartition, int]:
    """Returns the offsets of a checkpoint that is gone: the lowest ones, which hide nothing and show nothing too early.

    A note of a repair that may have been there counts as there.
    """
    is_note = PurePosixPath(checkpoint_path).name == GIVEN_UP_FILE
    numbers = {key: [start for start in starts if start is not None] for key, starts in named.items()}
    return {key: min(found) for key, found in numbers.items() if found and (is_note or None not in named[key])}


def witness_path(checkpoint_path: str) -> str:
    """Returns the path of the file beside a checkpoint."""
    return f"{parent_of(checkpoint_path)}/{WITNESS_FILES[PurePosixPath(checkpoint_path).name]}"


def read_witness(fs: FileSystem, path: str) -> dict[TopicPartition, Starts] | None:
    """Reads the values that the checkpoint may have for each replica; None: they are unknown.

    Raises:
        OSError: The disk failed.
    """
    try:
        data = checkpoints.read_file(fs, path, _SIZE_BYTES_MAX)
    except checkpoints.DamagedCheckpointError:
        return None
    if data is None:
        return None
    version, _, rest = data.partition(b"\n")
    checksum, _, body = rest.partition(b"\n")
    if version != _VERSION or checksum != b"%08x" % crc32c(body):
        return None
    return dict(map(_parse, body.decode("utf-8").splitlines()))


def contradicted(fs: FileSystem, checkpoint_path: str, key: TopicPartition) -> Starts | None:
    """Returns all that the checkpoint and its witness say of a replica, where they contradict each other; None: they do not.

    Beside a running writer the two files may be of different moments.

    Raises:
        CorruptCheckpointError: The checkpoint cannot be read; the error is the leaf library's.
        OSError: The disk failed.
    """
    offsets = checkpoints.read_offset_checkpoint(fs, checkpoint_path)
    named = read_witness(fs, witness_path(checkpoint_path))
    if offsets is None or named is None or offsets.get(key) in named.get(key, _NOTHING):
        return None
    return named.get(key, _NOTHING) | {offsets.get(key)}


def doubtful_start(path: str, key: TopicPartition, found: int | None, named: Starts) -> CorruptCheckpointError:
    """Returns the error for a replica of which a checkpoint says something else than the witness beside it.

    Args:
        path: The checkpoint.
        key: (topic, partition).
        found: Its value.
        named: The values that the witness names.
    """
    name, witness = partition_dir_name(*key), witness_path(path)
    folder = f"{parent_of(path)}/{name}"
    return CorruptCheckpointError(
        path,
        0,
        f"it says that {name} starts at {described({found})}, {witness}, which was written with it, at "
        f"{described(named)}: one of them is damaged, and a start that is too high hides records. Nothing was changed: "
        f"restore the file; where the partition has other replicas, this one is fetched from its leader again; or "
        f"`replog log repair {folder}` takes the lowest of these starts, which hides nothing; or, where Apache Kafka, an "
        f"older replog or you have changed it since, delete {witness}",
    )


def described(offsets: Iterable[int | None]) -> str:
    """Returns log starts as messages name them."""
    texts = sorted("its first segment" if offset is None else str(offset) for offset in offsets)
    return " or ".join(texts)


def _format(starts: Mapping[TopicPartition, Starts]) -> bytes:
    body = "".join(_lines(starts)).encode()
    return _VERSION + b"\n%08x\n" % crc32c(body) + body


def _lines(starts: Mapping[TopicPartition, Starts]) -> Iterator[str]:
    for (topic, partition), offsets in starts.items():
        if offsets != _NOTHING:
            texts = sorted(_NO_LINE if offset is None else str(offset) for offset in offsets)
            yield f"{topic} {partition} {' '.join(texts)}\n"


def _parse(line: str) -> tuple[TopicPartition, Starts]:
    topic, partition, *offsets = line.split()
    return (topic, int(partition)), frozenset(None if text == _NO_LINE else int(text) for text in offsets)
