"""What may happen to one file of a stopped cluster: the kinds are told of in `disk_damage_simulation`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import OpenMode
from tests.sim.stopped_cluster import StoppedCluster

UNREAD = (".lock", ".reserve")
"""Files without content that anybody reads."""

SMALL_BYTES = 256
KINDS = ("flip", "flip", "flip", "flip", "missing", "older", "foreign", "swap")


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage.

    Attributes:
        kind: flip, missing, older, foreign or swap.
        node: whose file.
        path: which file.
        numbers: of a flip byte and bit; of an older file which moment.
        other: of a foreign one and a swap, node and path of the other file.
    """

    kind: str
    node: int
    path: str
    numbers: tuple[int, ...] = ()
    other: tuple[int, str] | None = None

    def __str__(self) -> str:
        other = () if self.other is None else self.other
        return " ".join(map(str, (self.kind, self.node, self.path, *self.numbers, *other)))

    @classmethod
    def parse(cls, text: str) -> Damage:
        """Returns what `str` has told."""
        kind, node, path, *rest = text.split(" ")
        if kind in {"foreign", "swap"}:
            return cls(kind, int(node), path, other=(int(rest[0]), rest[1]))
        return cls(kind, int(node), path, tuple(map(int, rest)))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are not as they were, and where the file itself is gone, its folder."""
        paths = (self.path,) if self.kind != "swap" or self.other is None else (self.path, self.other[1])
        return paths if self.kind == "flip" else (*paths, *(path.rpartition("/")[0] for path in paths))

    @property
    def is_of_directory(self) -> bool:
        """Whether the file is one of the log directory, and not of a partition."""
        return self.path.count("/") == 2

    def apply(self, stopped: StoppedCluster, disks: dict[int, SimulatedFileSystem]) -> None:
        """Damages the disk of its node."""
        disk = disks[self.node]
        match self.kind:
            case "flip":
                disk.flip_bit(self.path, *self.numbers)
            case "missing":
                disk.remove(self.path)
            case "older":
                _put(disk, self.path, stopped.earlier[self.numbers[0]][self.node].get(self.path))
            case _:
                node, path = self.other or (self.node, self.path)
                here, there = disk.image()[self.path], stopped.disks[node].image()[path]
                _put(disk, self.path, there)
                if self.kind == "swap":
                    _put(disk, path, here)


def draw_damage(stopped: StoppedCluster, rng: random.Random) -> Damage:
    """Draws one: a small file as likely as a large one."""
    while True:
        node = rng.choice(sorted(stopped.disks))
        files = _files(stopped, node)
        path, kind = rng.choice(sorted(files)), rng.choice(KINDS)
        if kind == "flip" and files[path]:
            return Damage(kind, node, path, (rng.randrange(len(files[path])), rng.randrange(8)))
        others = list(_others(stopped, node, path, kind))
        if others:
            return rng.choice(others)


def every_damage(stopped: StoppedCluster, what: str) -> Iterator[Damage]:
    """Yields every flip of every small file that is no index and no log, or all that is no flip."""
    for node in sorted(stopped.disks):
        for path, content in sorted(_files(stopped, node).items()):
            if what == "kinds":
                for kind in sorted({*KINDS} - {"flip"}):
                    yield from _others(stopped, node, path, kind)
            elif len(content) <= SMALL_BYTES and PurePosixPath(path).suffix not in {".log", ".index", ".timeindex"}:
                for position in range(len(content)):
                    yield from (Damage("flip", node, path, (position, bit)) for bit in range(8))


def _others(stopped: StoppedCluster, node: int, path: str, kind: str) -> Iterator[Damage]:
    """Yields what may happen to a file besides a flip; not what leaves it as it is."""
    content = stopped.disks[node].image()[path]
    match kind:
        case "missing":
            yield Damage(kind, node, path)
        case "older":
            for moment, earlier in enumerate(stopped.earlier):
                if path in earlier[node] and earlier[node][path] != content:
                    yield Damage(kind, node, path, (moment,))
        case "foreign" | "swap":
            for other in sorted(stopped.disks):
                if kind == "swap" and other != node:
                    continue
                for there, found in sorted(_files(stopped, other).items()):
                    is_alike = there == path if other != node else _name(there) == _name(path) and there != path
                    if is_alike and found != content:
                        yield Damage(kind, node, path, other=(other, there))


def _files(stopped: StoppedCluster, node: int) -> dict[str, bytes]:
    return {
        path: content
        for path, content in stopped.disks[node].image().items()
        if not path.endswith(("/", ".deleted", *UNREAD))
    }


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _put(disk: SimulatedFileSystem, path: str, content: bytes | None) -> None:
    disk.remove(path)
    if content is not None:
        file = disk.open(path, OpenMode.CREATE)
        file.pwrite([content], 0)
        file.sync()
        file.close()
