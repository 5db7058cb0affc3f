"""The language of `replog metadata shell`: one line is one command, its answer is lines.

ls [PATH]                  names in a folder
cat PATH...                content of leaves, as JSON
tree [PATH] [DEPTH]        everything below, DEPTH levels (default: all)
find [PATH] [CONDITION...] leaves that fit: a name pattern such as 'flights*', or FIELD=VALUE such as leader=-1
diff A..B [PATH]           what changed between two offsets (A left out: the first there is; B: the newest)
watch [PATH]               what changes from now on, until Ctrl-C
cd [PATH], pwd, at [OFFSET], help, exit
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence

from replog.cli.errors import CommandFailedError, UsageError
from replog.cli.metadata.sources import Source
from replog.metadata.tree import (
    Folder,
    Node,
    diff_lines,
    find_lines,
    find_node,
    leaf_text,
    list_names,
    path_parts,
    tree_lines,
)

DEPTH_MAX = 100
WATCH_PAUSE_S = 0.5
HELP = __doc__.split("\n\n", 1)[1].rstrip()


class MetadataShell:
    """Answers commands about the trees of a source.

    Args:
        source: The source of the trees.
        at: The offset to look at; None: the newest.
        pause: The function that waits between two looks of `watch`.
    """

    def __init__(
        self,
        source: Source,
        at: int | None = None,
        pause: Callable[[], None] = lambda: time.sleep(WATCH_PAUSE_S),
    ) -> None:
        self._source = source
        self._pause = pause
        self._at = at
        self._folder = ""
        self._tree: Node | None = None
        self._commands: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
            "ls": self._ls,
            "cat": self._cat,
            "tree": self._show_tree,
            "find": self._find,
            "diff": self._diff,
            "watch": self._watch,
            "cd": self._cd,
            "pwd": lambda _: iter([self.folder]),
            "at": self._go_to,
            "help": lambda _: iter([HELP]),
        }

    @property
    def folder(self) -> str:
        """Where relative paths begin."""
        return self._folder or "/"

    @property
    def offset(self) -> int:
        """The offset of the image that is looked at."""
        return self._source.newest_offset() if self._at is None else self._at

    def answer(self, line: str) -> Iterator[str]:
        """Carries out one line.

        Raises:
            UsageError: There is no such command, or its arguments are wrong.
            ReplogError: The command cannot be carried out; the message says why.
        """
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UsageError("COMMAND", line, f"{line}: {error}") from error
        return self.run(words)

    def run(self, words: Sequence[str]) -> Iterator[str]:
        """Carries out one command, already cut into words."""
        if not words:
            return iter(())
        command = self._commands.get(words[0])
        if command is None:
            known = ", ".join(self._commands)
            raise UsageError("COMMAND", words[0], f"there is no command {words[0]}: there are {known}")
        return command(words[1:])

    def _ls(self, words: Sequence[str]) -> Iterator[str]:
        for path in words or [""]:
            node = self._node(path)
            yield from list_names(node, path)

    def _cat(self, words: Sequence[str]) -> Iterator[str]:
        if not words:
            raise UsageError("PATH", "", "cat needs a PATH, such as /brokers/1")
        for path in words:
            node = self._node(path)
            if isinstance(node, Folder):
                raise CommandFailedError(f"{self._path(path)} is a folder: use ls or tree")
            yield leaf_text(node)

    def _show_tree(self, words: Sequence[str]) -> Iterator[str]:
        path, depth = words[0] if words else "", DEPTH_MAX
        if len(words) > 1:
            depth = _number(words[1], "DEPTH")
        return tree_lines(self._node(path), self._path(path) or "/", depth)

    def _find(self, words: Sequence[str]) -> Iterator[str]:
        has_path = bool(words) and find_node(self._root(), self._path(words[0])) is not None
        path, conditions = (words[0], words[1:]) if has_path else ("", words)
        if words and not has_path and "/" in words[0] and "=" not in words[0]:
            self._node(words[0])  # a path that does not exist: say so
        return find_lines(self._node(path), self._path(path), conditions)

    def _diff(self, words: Sequence[str]) -> Iterator[str]:
        first, separator, last = (words[0] if words else "").partition("..")
        if not separator:
            raise UsageError("A..B", " ".join(words), "diff needs two offsets as A..B, such as 100..200, or 100..")
        after_offset = _number(last, "B") if last else self._source.newest_offset()
        before_offset = _number(first, "A") if first else self._first_offset()
        path = self._path(words[1]) if len(words) > 1 else self._folder
        return _changes(self._source.tree(before_offset), self._source.tree(after_offset), path)

    def _watch(self, words: Sequence[str]) -> Iterator[str]:
        path = self._path(words[0]) if words else self._folder
        offset, before = self._source.newest_offset(), self._source.tree(None)
        while True:
            self._pause()
            self._source.refresh()
            if self._source.newest_offset() == offset:
                continue
            offset, after = self._source.newest_offset(), self._source.tree(None)
            for line in _changes(before, after, path):
                yield f"@{offset} {line}"
            before = after

    def _cd(self, words: Sequence[str]) -> Iterator[str]:
        path = self._path(words[0] if words else "/")
        if not isinstance(self._node(path or "/"), Folder):
            raise CommandFailedError(f"{path} is not a folder")
        self._folder = path
        return iter(())

    def _go_to(self, words: Sequence[str]) -> Iterator[str]:
        at = _number(words[0], "OFFSET") if words else None
        if at is None:
            self._source.refresh()
        self._source.tree(at)  # an offset that there is no image of is refused here
        self._at, self._tree = at, None
        return iter([f"at offset {self.offset}"])

    def _first_offset(self) -> int:
        log = find_node(self._root(), "/quorum/log")
        return 0 if log is None or isinstance(log, Folder) else int(log["first_image_offset"])

    def _root(self) -> Node:
        if self._tree is None:
            self._tree = self._source.tree(self._at)
        return self._tree

    def _path(self, path: str) -> str:
        return "".join(f"/{part}" for part in path_parts(path if path.startswith("/") else f"{self._folder}/{path}"))

    def _node(self, path: str) -> Node:
        node = find_node(self._root(), self._path(path))
        if node is None:
            raise CommandFailedError(f"there is no {self._path(path)} at offset {self.offset}{self._source.hint}")
        return node


def _changes(before: Node, after: Node, path: str) -> Iterator[str]:
    then, now = (_without_local(find_node(tree, path), path) for tree in (before, after))
    return diff_lines(then, now, path, path)


def _without_local(node: Node | None, path: str) -> Node | None:
    """Leaves out what is not part of an image: the same at all offsets, it does not belong into a difference."""
    if path or not isinstance(node, Folder):
        return node
    names = [name for name in node.names() if name not in {"local", "quorum"}]
    return Folder(lambda: names, node.child)


def _number(text: str, argument: str) -> int:
    if not text.isdigit():
        raise UsageError(argument, text, f"{argument} {text} is not a number")
    return int(text)
