"""A class has a name that no other class of replog has: whoever searches for one thing does not find another.

Names with an underscore are about one module; those of generated messages are Kafka's, and are not looked at.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = "replog"
NOT_LOOKED_AT = (
    "replog/pb",
    "replog/wire/messages",
    "replog/coordinator/messages",
    "replog/coordinator/transactions/messages",
    "replog/rpc",
)

OF_CORES = "each core has a message of its own for it"
SHARED = {
    "AppendRecords": OF_CORES,
    "AppendRefused": OF_CORES,
    "Reply": OF_CORES,
    "ReplyError": OF_CORES,
    "Resigned": OF_CORES,
    "Submit": OF_CORES,
    "Tick": OF_CORES,
    "AtTime": "a place in a partition, as an option of Spark and as an argument of a consumer",
}
"""Names that stand for the same thing in several places, and why that is."""


def places() -> dict[str, list[str]]:
    """Returns where the classes of each public name are."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / PRODUCT).rglob("*.py")):
        file = path.relative_to(ROOT)
        if not any(file.is_relative_to(room) for room in NOT_LOOKED_AT):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{file}:{node.lineno}")
    return found


def violations() -> Iterator[str]:
    """Yields each name of several classes, and each line of the table here that is about one class or none."""
    several = {name: where for name, where in places().items() if len(where) > 1}
    for name, where in several.items():
        if name not in SHARED:
            yield f"{name}: stands for {len(where)} classes, give all but one another name: {', '.join(where)}"
    yield from (f"{name}: its line is left over" for name in sorted(SHARED.keys() - several))
