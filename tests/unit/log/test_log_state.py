"""Who changes what a log knows: its methods only, so that each change has a name and a place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import replog.log
from replog.log.state import LogState

ROOM = Path(replog.log.__file__).parent
CHANGERS = {
    "segments": {"append", "remove_last", "replace"},
    "epochs": {"assign", "assign_all", "truncate_from_end", "truncate_from_start", "clear"},
    "unsynced": {"append", "remove", "clear", "extend"},
}


def is_state(node: ast.expr) -> bool:
    """Whether an expression is the state of a log, as all parts call it."""
    return ast.unparse(node) in {"state", "self._state", "log._state"}


def changes(tree: ast.AST) -> Iterator[str]:
    """Assignments to attributes of a state, and calls that change its segments, epochs and files."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [part for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Attribute)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and is_state(target.value):
                yield ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            part = owner.attr if isinstance(owner, ast.Attribute) and is_state(owner.value) else ""
            if node.func.attr in CHANGERS.get(part, ()):
                yield ast.unparse(node)


@pytest.mark.parametrize("path", sorted(ROOM.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOM)))
def test_only_its_methods_change_the_state(path: Path) -> None:
    assert list(changes(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "line",
    [
        "state.log_end_offset = 7",
        "offset, self._state.recovery_point = 3, 4",
        "self._state.name_changes += 1",
        "state.segments.append(active)",
        "self._state.epochs.clear()",
    ],
)
def test_such_a_change_is_found(line: str) -> None:
    assert list(changes(ast.parse(line))) == [ast.unparse(ast.parse(line))]


def test_the_names_are_those_of_the_state() -> None:
    assert {*CHANGERS} <= {*LogState.__slots__}
