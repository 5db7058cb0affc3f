"""Writes `docs/CONFIGURATION.md` from `ServerKeys`: ``python -m replog.config.docs > docs/CONFIGURATION.md``.

Why generated: a page kept by hand drifts from the code.  The meaning of a key is the string under its field, which
Python does not keep at run time, so it is read from the source.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from itertools import chain, pairwise

from replog.config.group_keys import GroupKeys
from replog.config.keys import Key
from replog.config.log_keys import LogKeys
from replog.config.server_keys import KEYS, ServerKeys

_PARTS = (ServerKeys, LogKeys, GroupKeys)

INTRODUCTION = """\
# Configuration of a node

<!-- Made by `make docs` from replog/config/server_keys.py, log_keys.py and group_keys.py; change it there. -->

`replog server start --config server.toml` reads one TOML file. Keys carry Kafka's names, quoted or as tables. An
unknown key, a value out of range and values that contradict each other are refused before anything is opened.

```toml
"node.id" = 1
"log.dirs" = ["/var/lib/replog"]
"listeners" = ["127.0.0.1:9092"]

[replica.lag]               # the same as "replica.lag.time.max.ms"
time.max.ms = 10000
```

In Python: `ServerConfig(node_id=1, log_dirs=("/var/lib/replog",))`; a field's name has underscores for dots.
"""

DIFFERENCES = """\
## Where defaults differ from Kafka's

A key that is not listed here has Kafka's default.

| key | here | Kafka | why |
|---|---|---|---|"""

KEYS_TITLE = "## All keys"


def render() -> str:
    """Returns the whole page."""
    meanings = field_meanings()
    parts = [INTRODUCTION, "\n".join([DIFFERENCES, *_difference_rows()]), KEYS_TITLE]
    parts += [_entry(key, meanings[key.field_name]) for key in KEYS.values()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def field_meanings() -> dict[str, str]:
    """Reads the string under each field from the source; returns it as one line, by field name."""
    meanings = {}
    for statement, following in pairwise(chain.from_iterable(map(_statements, _PARTS))):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                meanings[name] = " ".join(text.split())
            case _:
                pass
    return meanings


def _statements(keys: type) -> list[ast.stmt]:
    body = ast.parse(textwrap.dedent(inspect.getsource(keys))).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{keys.__name__} is not a class")
    return body.body


def _difference_rows() -> Iterator[str]:
    for key in KEYS.values():
        if key.differs is not None:
            yield f"| `{key.name}` | {_code(key.show_default())} | {key.differs.kafka} | {key.differs.why} |"


def _entry(key: Key, meaning: str) -> str:
    facts = [key.kind.type_name, key.kind.unit, key.kind.describe_range()]
    default = "**required**" if key.is_required else f"default {_code(key.show_default())}"
    return f"### `{key.name}`\n\n{', '.join(fact for fact in facts if fact)}; {default}\n\n{meaning}"


def _code(default: str) -> str:
    return default if default in {"required", "not set"} else f"`{default}`"


if __name__ == "__main__":
    sys.stdout.write(render())
