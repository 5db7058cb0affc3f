"""Only its methods change what a log knows, so that each change has a name and a place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from replog.log.state import LogState

ROOT = Path(__file__).parents[2]
ROOM = "replog/log"
CHANGERS = {
    "segments": {"append", "remove_last", "replace"},
    "epochs": {"assign", "assign_all", "truncate_from_end", "truncate_from_start", "clear"},
    "unsynced": {"append", "remove", "clear", "extend"},
}


def is_state(node: ast.expr) -> bool:
    """Whether an expression is the state of a log, as all parts call it."""
    return ast.unparse(node) in {"state", "self._state", "log._state"}


def changes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line and text of assignments to a state, and of calls that change its segments, epochs and files."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [part for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Attribute)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and is_state(target.value):
                yield target.lineno, ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            part = owner.attr if isinstance(owner, ast.Attribute) and is_state(owner.value) else ""
            if node.func.attr in CHANGERS.get(part, ()):
                yield node.lineno, ast.unparse(node)


def violations() -> Iterator[str]:
    """Yields each change of a log's state that is none of its methods, and each name here that the state does not have."""
    for path in sorted((ROOT / ROOM).rglob("*.py")):
        for line, text in changes(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{path.relative_to(ROOT)}:{line}: {text!r} changes a log's state: give LogState a method for it"
    yield from (f"LogState has no {name}: correct this rule" for name in CHANGERS if name not in LogState.__slots__)
