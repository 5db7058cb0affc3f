"""Writes `docs/CONFIGURATION.md` from `ServerKeys`: ``python -m replog.config.docs > docs/CONFIGURATION.md``.

Why generated: a page kept by hand drifts from the code.  The meaning of a key is the string under its field, which
Python does not keep at run time, so it is read from the source.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise

from replog.config.access_keys import AccessKeys
from replog.config.group_keys import GroupKeys
from replog.config.keys import Key, nearest_name
from replog.config.log_keys import LogKeys
from replog.config.security_keys import ConnectionKeys, SaslKeys, SecurityKeys, TlsKeys
from replog.config.server_keys import KEYS, ServerKeys
from replog.config.transaction_keys import TransactionKeys
from replog.errors import ConfigError
from replog.metadata.config_keys import (
    BROKER_KEYS,
    CLUSTER_WIDE,
    CONFIG_KEYS,
    CONTROLLER_KEYS,
    ConfigKey,
    shortened,
)

_PARTS = (ServerKeys, LogKeys, GroupKeys, TransactionKeys, AccessKeys, SecurityKeys, ConnectionKeys, SaslKeys, TlsKeys)

INTRODUCTION = """\
# Configuration of a node

<!-- Made by `make docs` from replog/config/server_keys.py, log_keys.py, group_keys.py,
transaction_keys.py, access_keys.py and security_keys.py; change it there. -->

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

_NAME_CHARACTERS_MAX = 200
_DYNAMIC_ONLY = {
    "leader.replication.throttled.rate": "Bytes a second that a broker gives at most to new replicas of a reassignment.",
    "follower.replication.throttled.rate": "Bytes a second that a broker fetches at most for new replicas of a reassignment.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes a second that a replica takes at most on its way to another folder.",
}
"""Of keys that no node's file has."""


def render() -> str:
    """Returns the whole page."""
    meanings = field_meanings()
    parts = [INTRODUCTION, "\n".join([DIFFERENCES, *_difference_rows()]), KEYS_TITLE]
    parts += [_entry(key, meanings[key.field_name]) for key in KEYS.values()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def explain(name: str) -> list[str]:
    """Says what a key is in lines: range and default, meaning, where it is set, and where it differs from Kafka's.

    Args:
        name: The name in a node's file, or of a topic's configuration.

    Raises:
        ConfigError: There is no such key; the message names one that is like it.
    """
    dynamic = {key.cluster_name: key for key in (*CONFIG_KEYS, *BROKER_KEYS, *CONTROLLER_KEYS)}
    of_topics = {key.name: key for key in CONFIG_KEYS}
    known = {**of_topics, **dynamic, **KEYS}
    if name not in known:
        near = nearest_name(name[:_NAME_CHARACTERS_MAX], known)
        hint = f'Did you mean "{near}"?' if near else "No key is like it; docs/CONFIGURATION.md lists them all"
        raise ConfigError(name, None, f'unknown key "{shortened(name)}". {hint}')
    changing = of_topics.get(name) or dynamic.get(name)
    key = KEYS.get(name if changing is None else changing.cluster_name)
    meaning = _DYNAMIC_ONLY[name] if key is None else field_meanings()[key.field_name]
    facts = key.describe() if key is not None else f"{changing.type}, default {changing.default}" if changing else ""
    lines = [f"{name}: {facts}", meaning, f"Set it {_where(key, changing)}."]
    if key is not None and key.differs is not None:
        lines.append(f"Kafka has {key.differs.kafka}: here, {key.differs.why}.")
    return lines


def _where(key: Key | None, changing: ConfigKey | None) -> str:
    """Says where a key is set, by what name."""
    places = []
    if changing in CONFIG_KEYS and changing is not None:
        places.append(f"by `replog configs set --topic NAME {changing.name}=...` for a topic")
    if changing is not None:
        one = "" if changing in CLUSTER_WIDE or changing in CONTROLLER_KEYS else ", with --broker ID for one broker"
        places.append(f"by `replog configs set {changing.cluster_name}=...` for the cluster{one}")
    if key is not None:
        places.append(f"in a node's file as {key.name}, from its next start on")
    return "; ".join(places)


@cache
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
    # the module's source and not the class's: to find where a class ends, `inspect` reads all of it token by token
    module = ast.parse(inspect.getsource(sys.modules[keys.__module__]))
    return next(each.body for each in module.body if isinstance(each, ast.ClassDef) and each.name == keys.__name__)


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
