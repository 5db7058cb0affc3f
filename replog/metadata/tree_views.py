"""What the metadata shell says about a tree: listings, contents, matches, differences; as lines.

ls        topic  0  1
cat       {"replicas": [1, 2], "isr": [1], "leader": 1, ...}
tree      names, indented, with the content of leaves behind them
find      /topics/by-name/flights/0 {"replicas": [1, 2], ...}
diff      + /brokers/3 {...}      - /topics/... {...}      ~ /brokers/1 fenced: true -> false
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import cast

from replog.metadata.tree import Folder, Leaf, Node, leaves

BY_ID_PATH = "/topics/by-id"
"""Shows what `/topics/by-name` shows; left out where both would be listed."""


def leaf_text(leaf: Leaf) -> str:
    """Returns a leaf as one line of JSON."""
    return json.dumps(leaf, ensure_ascii=False)


def list_names(node: Node, name: str) -> list[str]:
    """Returns the names in a folder, those of folders with a slash behind; for a leaf its own."""
    if not isinstance(node, Folder):
        return [name]
    return [f"{child}/" if isinstance(node.child(child), Folder) else child for child in node.names()]


def tree_lines(node: Node, name: str, depth_max: int, indent: str = "") -> Iterator[str]:
    """Yields lines that show the node and what is below it, `depth_max` levels deep."""
    if not isinstance(node, Folder):
        yield f"{indent}{name} {leaf_text(node)}"
        return
    names = list(node.names())
    more = f" ({len(names)})" if depth_max <= 0 and names else ""
    yield f"{indent}{name.rstrip('/')}/{more}"
    if depth_max > 0:
        for child_name in names:
            if (child := node.child(child_name)) is not None:
                yield from tree_lines(child, child_name, depth_max - 1, indent + "  ")


def find_lines(node: Node, path: str, conditions: Sequence[str]) -> Iterator[str]:
    """Yields the leaves below `path` that fit all conditions, with their content.

    Args:
        node: The node at `path`.
        path: The path where the search begins, "" the root.
        conditions: `FIELD=VALUE` (as shown by `cat`; of a list one item is enough), or a pattern such as `flights*`
            that any name on the way fits.
    """
    for where, leaf in leaves(node, path):
        if _is_shown_twice(where, path):
            continue
        if all(_fits(condition, where, leaf) for condition in conditions):
            yield f"{where} {leaf_text(leaf)}"


def diff_lines(before: Node | None, after: Node | None, path: str = "", root: str = "") -> Iterator[str]:
    """Yields what changed below a node, in order of the names; nothing when nothing did.

    Args:
        before: The node then; None: it was not there.
        after: The node now; None: it is not there any more.
        path: The path of both.
        root: The path where the walk began, to say each thing once.
    """
    if _is_shown_twice(path, root):
        return
    if isinstance(before, Folder) and isinstance(after, Folder):
        then, now = list(before.names()), list(after.names())
        known = set(then)
        for name in [*then, *(name for name in now if name not in known)]:
            yield from diff_lines(before.child(name), after.child(name), f"{path}/{name}", root)
    elif before is None or after is None or isinstance(before, Folder) or isinstance(after, Folder):
        yield from _all_lines("-", before, path, root)
        yield from _all_lines("+", after, path, root)
    else:
        changes = [
            f"{field}: {_value(before, field)} -> {_value(after, field)}"
            for field in [*before, *(field for field in after if field not in before)]
            if _value(before, field) != _value(after, field)
        ]
        if changes:
            yield f"~ {path} {', '.join(changes)}"


def _all_lines(sign: str, node: Node | None, path: str, root: str) -> Iterator[str]:
    if node is not None:
        for where, leaf in leaves(node, path):
            if not _is_shown_twice(where, root):
                yield f"{sign} {where} {leaf_text(leaf)}"


def _value(leaf: Leaf, field: str) -> str:
    return json.dumps(leaf[field], ensure_ascii=False) if field in leaf else "(none)"


def _is_shown_twice(path: str, root: str) -> bool:
    return path.startswith(BY_ID_PATH) and not root.startswith(BY_ID_PATH)


def _fits(condition: str, path: str, leaf: Leaf) -> bool:
    field, separator, wanted = condition.partition("=")
    if not separator:
        return any(fnmatchcase(name, condition) for name in path.split("/") if name)
    if field not in leaf:
        return False
    value = leaf[field]
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return any(wanted in {str(item), json.dumps(item)} for item in items)
