"""An image as a tree of names, for people who look into it: `/topics/by-name/flights/0`, `/brokers/1`, ...

    /brokers/ID                      registration
    /controllers/ID                  registration
    /drained-brokers                 ids
    /topics/by-name/NAME/topic       name and id
    /topics/by-name/NAME/PARTITION   replicas, ISR, leader, epochs
    /topics/by-id/UUID/...           the same, by id
    /configs/topic/NAME              values that were set
    /configs/broker/ID, .../defaults
    /features/NAME                   level
    /acls/UUID                       entry of an access control list
    /users/NAME                      mechanisms, and how often the password is hashed
    /delegation-tokens/ID            whose it is, and how long it holds
    /producer-ids                    next block
    /transaction                     only while one is open: how many records wait for its end

Made as it is walked: to look at one partition costs nothing for the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar, cast
from uuid import UUID

from msgspec import Struct

from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import ResourceType

Leaf: TypeAlias = Mapping[str, Any]
"""Field -> value as JSON has it."""

DEFAULTS_NAME: Final = "defaults"
"""Stands for the resource name "", the cluster-wide default."""

HIDDEN: Final = "[hidden]"
"""Stands for bytes."""

_K = TypeVar("_K")
_V = TypeVar("_V")


class Folder(Struct, frozen=True):
    """Named nodes, made on demand.

    Attributes:
        names: The names of all children, in the order to show them.
        child: The node of a name, None when there is none.
    """

    names: Callable[[], Iterable[str]]
    child: Callable[[str], Node | None]


Node: TypeAlias = Folder | Leaf


def folder(children: Mapping[str, Node]) -> Folder:
    """Returns a folder of nodes that are there already."""
    return Folder(lambda: children, children.get)


def image_tree(image: MetadataImage) -> dict[str, Node]:
    """Returns the children of the root; more may be added before `folder` is made of them."""
    children: dict[str, Node] = {
        "brokers": _table(image.brokers, _number, record_leaf),
        "controllers": _table(image.controllers, _number, record_leaf),
        "drained-brokers": {"broker_ids": sorted(image.drained_brokers)},
        "topics": folder(
            {
                "by-name": _table(image.topics_by_name, str, _topic),
                "by-id": _table(image.topics_by_id, _uuid, _topic),
            }
        ),
        "configs": folder({kind.name.lower(): _configs(image, kind) for kind in ResourceType}),
        "features": _table(image.features, str, _feature),
        "acls": _table(image.acls, _uuid, record_leaf),
        "users": _users(image),
        "delegation-tokens": _table(image.delegation_tokens, str, record_leaf),
        "producer-ids": {"next_producer_id": image.next_producer_id},
    }
    if image.open_transaction is not None:
        children["transaction"] = {"records_waiting": len(image.open_transaction)}
    return children


def record_leaf(record: Struct) -> Leaf:
    """Returns the fields of a record."""
    return {name: plain(getattr(record, name)) for name in record.__struct_fields__}


def find_node(root: Node, path: str) -> Node | None:
    """Returns the node of an absolute path such as `/topics/by-name`; None when there is none."""
    node: Node | None = root
    for name in path_parts(path):
        if not isinstance(node, Folder):
            return None
        node = node.child(name)
    return node


def path_parts(path: str) -> list[str]:
    """Returns the names of a path; `.` and `..` are resolved, empty ones ignored."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return parts


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yields (path, leaf) of everything below a node, itself included, in order."""
    if isinstance(node, Folder):
        for name in node.names():
            if (child := node.child(name)) is not None:
                yield from leaves(child, f"{path}/{name}")
    else:
        yield path or "/", node


def plain(value: Any) -> Any:
    """Returns a value as JSON has it."""
    match value:
        case UUID():
            return str(value)
        case Enum():
            return value.name.lower()
        case bytes():  # only what is kept of passwords has some: by it they can be tried
            return HIDDEN
        case tuple() | list():
            return [plain(item) for item in cast("Iterable[Any]", value)]
        case Struct():
            return record_leaf(value)
        case _:
            return value


def _table(entries: Mapping[_K, _V], key_of: Callable[[str], _K | None], make: Callable[[_V], Node]) -> Folder:
    def child(name: str) -> Node | None:
        key = key_of(name)
        value = None if key is None else entries.get(key)
        return None if value is None else make(value)

    return Folder(lambda: map(str, sorted(cast("Iterable[Any]", entries))), child)


def _users(image: MetadataImage) -> Folder:
    users: dict[str, dict[str, int]] = {}
    for (name, mechanism), kept in sorted(image.scram_credentials.items(), key=itemgetter(0)):
        users.setdefault(name, {})[mechanism.sasl_name] = kept.iterations
    return folder(users)


def _number(name: str) -> int | None:
    return int(name) if name.isascii() and name.isdigit() and str(int(name)) == name else None


def _uuid(name: str) -> UUID | None:
    try:
        found = UUID(name)
    except ValueError:
        return None
    return found if str(found) == name else None


def _topic(topic: TopicImage) -> Folder:
    partitions = _table(topic.partitions, _number, record_leaf)
    own: Leaf = {"name": topic.name, "topic_id": str(topic.topic_id)}
    return Folder(
        lambda: ["topic", *partitions.names()], lambda name: own if name == "topic" else partitions.child(name)
    )


def _feature(level: int) -> Leaf:
    return {"level": level}


def _configs(image: MetadataImage, kind: ResourceType) -> Folder:
    def names() -> list[str]:
        return [name or DEFAULTS_NAME for type_of, name in sorted(image.configs) if type_of is kind]

    return Folder(names, partial(_config, image, kind))


def _config(image: MetadataImage, kind: ResourceType, name: str) -> Leaf | None:
    is_default = kind is ResourceType.BROKER and name == DEFAULTS_NAME
    values = image.configs.get((kind, "" if is_default else name))
    return None if values is None else dict(sorted(values.items()))


BY_ID_PATH = "/topics/by-id"
"""Shows what `/topics/by-name` shows; left out where both would be listed."""


def leaf_text(leaf: Leaf) -> str:
    """Returns a leaf as one line of JSON.

    ls        topic  0  1
    cat       {"replicas": [1, 2], "isr": [1], "leader": 1, ...}
    tree      names, indented, with the content of leaves behind them
    find      /topics/by-name/flights/0 {"replicas": [1, 2], ...}
    diff      + /brokers/3 {...}      - /topics/... {...}      ~ /brokers/1 fenced: true -> false
    """
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
