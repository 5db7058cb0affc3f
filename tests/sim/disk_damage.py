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
PARTS_OF_A_PARTITION = 3
"""Slashes in the path of a file in a partition's folder."""

FILE_KINDS = ("missing", "half", "emptied", "older", "foreign", "swap")
FOLDER_KINDS = tuple(f"folder-{kind}" for kind in FILE_KINDS if kind != "half")


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage.

    Attributes:
        kind: flip, or one of the others; of a partition's whole folder it begins with `folder-`.
        node: whose file.
        path: which file; a folder ends with "/".
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
        if kind.endswith(("foreign", "swap")):
            return cls(kind, int(node), path, other=(int(rest[0]), rest[1]))
        return cls(kind, int(node), path, tuple(map(int, rest)))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are not as they were, and where the file itself is gone, its folder.

        Of two batches of the metadata log whose epochs contradict each other, either may be the wrong one: its folder too.
        """
        is_swap = self.other is not None and self.kind.endswith("swap")
        paths = (self.path, self.other[1]) if self.other is not None and is_swap else (self.path,)
        is_file = self.kind == "flip" and "/__cluster_metadata-0/" not in self.path
        return paths if is_file else (*paths, *(path.rpartition("/")[0] for path in paths))

    @property
    def is_of_directory(self) -> bool:
        """Whether the file is one of the log directory, and not of a partition."""
        return self.path.count("/") == 2

    def apply(self, stopped: StoppedCluster, disks: dict[int, SimulatedFileSystem]) -> None:
        """Damages the disk of its node."""
        disk = disks[self.node]
        if self.kind == "flip":
            disk.flip_bit(self.path, *self.numbers)
            return
        here = _content(disk.image(), self.path)
        match self.kind.removeprefix("folder-"):
            case "missing":
                _put(disk, self.path, None)
            case "half":
                _put(disk, self.path, {"": here[""][: len(here[""]) // 2]})
            case "emptied":
                _put(disk, self.path, {} if self.path.endswith("/") else {"": b""})
            case "older":
                _put(disk, self.path, _content(stopped.earlier[self.numbers[0]][self.node], self.path))
            case _:
                node, path = self.other or (self.node, self.path)
                _put(disk, self.path, _content(stopped.disks[node].image(), path))
                if self.kind.endswith("swap"):
                    _put(disk, path, here)


def draw_damage(stopped: StoppedCluster, rng: random.Random) -> Damage:
    """Draws one: a small file as likely as a large one, a flip as likely as all else of a file, a folder now and then."""
    while True:
        node = rng.choice(sorted(stopped.disks))
        if rng.random() < 0.15:
            path, kind = rng.choice(sorted(_folders(stopped, node))), rng.choice(FOLDER_KINDS)
        else:
            path, kind = (
                rng.choice(sorted(_files(stopped, node))),
                rng.choice((*FILE_KINDS, *("flip",) * len(FILE_KINDS))),
            )
        if kind == "flip":
            if size_bytes := len(stopped.disks[node].image()[path]):
                return Damage(kind, node, path, (rng.randrange(size_bytes), rng.randrange(8)))
        elif others := list(_others(stopped, node, path, kind)):
            return rng.choice(others)


def every_damage(stopped: StoppedCluster, what: str) -> Iterator[Damage]:
    """Yields every flip of every small file that is no index and no log, or all that is no flip."""
    for node in sorted(stopped.disks):
        for path in _folders(stopped, node) if what == "kinds" else ():
            for kind in FOLDER_KINDS:
                yield from _others(stopped, node, path, kind)
        for path, content in sorted(_files(stopped, node).items()):
            if what == "kinds":
                for kind in FILE_KINDS:
                    yield from _others(stopped, node, path, kind)
            elif len(content) <= SMALL_BYTES and PurePosixPath(path).suffix not in {".log", ".index", ".timeindex"}:
                for position in range(len(content)):
                    yield from (Damage("flip", node, path, (position, bit)) for bit in range(8))


def _others(stopped: StoppedCluster, node: int, path: str, kind: str) -> Iterator[Damage]:
    """Yields what may happen to a file or folder besides a flip; not what leaves it as it is."""
    content = _content(stopped.disks[node].image(), path)
    match kind.removeprefix("folder-"):
        case "missing":
            yield Damage(kind, node, path)
        case "half" | "emptied":
            if any(content.values()):
                yield Damage(kind, node, path)
        case "older":
            for moment, earlier in enumerate(stopped.earlier):
                if (older := _content(earlier[node], path)) and older != content:
                    yield Damage(kind, node, path, (moment,))
        case _:
            for other in sorted(stopped.disks):
                if kind.endswith("swap") and other != node:
                    continue
                for there in sorted(_folders(stopped, other) if path.endswith("/") else _files(stopped, other)):
                    is_alike = there == path if other != node else _name(there) == _name(path) and there != path
                    if is_alike and _content(stopped.disks[other].image(), there) != content:
                        yield Damage(kind, node, path, other=(other, there))


def _files(stopped: StoppedCluster, node: int) -> dict[str, bytes]:
    return {
        path: content
        for path, content in stopped.disks[node].image().items()
        if not path.endswith(("/", ".deleted", *UNREAD))
    }


def _folders(stopped: StoppedCluster, node: int) -> list[str]:
    """The folders of partitions, that of the metadata log among them."""
    found = {path[: path.rindex("/") + 1] for path in _files(stopped, node) if path.count("/") == PARTS_OF_A_PARTITION}
    return sorted(folder for folder in found if not folder.endswith(("-delete/", "-stray/")))


def _name(path: str) -> str:
    """Of a file; "" of a folder: each may stand in the place of each other one."""
    return path.rpartition("/")[2]


def _content(image: dict[str, bytes], path: str) -> dict[str, bytes]:
    """Returns what stands below a path, by the rest of its name; that of a file is ""."""
    if not path.endswith("/"):
        return {"": image[path]} if path in image else {}
    return {name[len(path) :]: each for name, each in image.items() if name.startswith(path) and not name.endswith("/")}


def _put(disk: SimulatedFileSystem, path: str, content: dict[str, bytes] | None) -> None:
    """Puts other content in the place of a file or folder; None: nothing."""
    if path.endswith("/"):
        disk.remove_tree(path.removesuffix("/"))
        if content is not None:
            disk.make_dirs(path.removesuffix("/"))
    else:
        disk.remove(path)
    for name, each in (content or {}).items():
        file = disk.open(f"{path}{name}", OpenMode.CREATE)
        file.pwrite([each], 0)
        file.sync()
        file.close()
