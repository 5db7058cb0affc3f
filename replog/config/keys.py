"""The table of configuration keys, made from the fields of a configuration class.

Why: `ServerKeys` states each key once; messages, `--config` files and documents read this table.  A field looks
like ``name: Annotated[int, milliseconds(1, DAY_MS)] = 10_000``, with its meaning in the string under it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from inspect import get_annotations
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from replog.access.secret import HIDDEN
from replog.config.kinds import Kind, Paths
from replog.errors import ConfigError

_PATHS = Paths("list of folders")
_FILES = ("ssl.keystore.location", "ssl.truststore.location")
"""Ends of the keys whose values are names of files."""

NEAR_ENOUGH = 0.6
"""Similarity (0 to 1, `difflib`) from which a known name is worth suggesting."""


class Differs(Struct, frozen=True):
    """Marks a default that is not Kafka's: what Kafka has, and why ours is another."""

    kafka: str
    why: str


class Key(Struct, frozen=True):
    """Everything about one key.

    Attributes:
        name: Kafka's dotted name.
        field_name: The name of the field: dots are underscores.
        kind: The type, unit and range.
        default: The typed default; `msgspec.NODEFAULT` for a required key.
        differs: The difference from Kafka's default; None where there is none.
    """

    name: str
    field_name: str
    kind: Kind
    default: object
    differs: Differs | None

    @property
    def is_required(self) -> bool:
        return self.default is NODEFAULT

    @property
    def is_optional(self) -> bool:
        """Whether None is allowed and means "not set"."""
        return self.default is None

    def show_default(self) -> str:
        """Returns the default in words."""
        if self.is_required:
            return "required"
        return "not set" if self.default in {None, ()} else self.kind.show(self.default)

    def describe(self) -> str:
        """Returns unit, range and default: the end of every message about this key."""
        default = self.show_default() if self.is_required else f"default {self.show_default()}"
        return ", ".join(part for part in (self.kind.unit, self.kind.describe_range(), default) if part)

    def parse(self, raw: object) -> object:
        """Returns the typed value.

        Raises:
            ConfigError: The value is of the wrong type or out of range.
        """
        if raw is None and self.is_optional:
            return None
        try:
            return self.kind.parse(raw)
        except ValueError as error:
            shown = HIDDEN if self.kind.is_secret else _show_raw(raw)
            value = None if self.kind.is_secret or isinstance(raw, Mapping) else raw
            raise ConfigError(self.name, value, f"{self.name} = {shown} {error} ({self.describe()})") from None


def keys_of(config_class: type[Any]) -> dict[str, Key]:
    """Makes the table of a configuration class: keys by dotted name, in the order in which they are written.

    Those that it has from other classes come behind its own, one class after the other.
    """
    written = [name for part in config_class.__mro__ for name in get_annotations(part)]
    table = {}
    for field in sorted(fields(config_class), key=lambda field: written.index(field.name)):
        kind, *rest = field.type.__metadata__
        name = field.name.replace("_", ".")
        table[name] = Key(name, field.name, kind, field.default, rest[0] if rest else None)
    return table


def unknown_key(name: str, value: object, keys: Mapping[str, Key]) -> ConfigError:
    """Makes the error for a name that is not in the table, with the nearest that is."""
    nearest = nearest_name(name, keys)
    if nearest is None:
        hint = "No key is like it; `python -m replog.config.docs` lists them all"
    else:
        hint = f'Did you mean "{nearest}"? ({keys[nearest].describe()})'
    return ConfigError(name, value, f'unknown key "{name}". {hint}')


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Finds the most similar name; None where nothing is similar.  Underscores, dashes and capitals do not count."""
    import difflib

    plain = name.lower().replace("_", ".").replace("-", ".")
    matches = difflib.get_close_matches(plain, list(names), n=1, cutoff=NEAR_ENOUGH)
    return matches[0] if matches else None


def flatten(tables: Mapping[str, object]) -> dict[str, object]:
    """Returns dotted names for a parsed TOML file, whether it has quoted names, tables, or both.

    Raises:
        ConfigError: One key is given in two ways.
    """
    flat: dict[str, object] = {}
    for name, value in _leaves(tables, ""):
        if name in flat:
            raise ConfigError(name, value, f'"{name}" is given twice, as a quoted name and in a table. Keep one')
        flat[name] = value
    return flat


def with_absolute_paths(values: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Returns the values of a file with relative names of folders and files counted from the folder that the file is in.

    Why: a node that finds other folders when it is started from elsewhere would be another node.

    Args:
        values: The values by dotted name, unchecked.
        folder: The folder of the file.
    """
    base = folder.absolute()
    found = dict(values)
    with contextlib.suppress(ValueError, KeyError):  # the parser of the value tells a wrong one
        found["log.dirs"] = [os.path.normpath(base / item) for item in _PATHS.names(found["log.dirs"])]
    with contextlib.suppress(ValueError, KeyError):
        found["log.dir"] = os.path.normpath(base / _PATHS.parse_item(found["log.dir"]))
    for name, value in values.items():
        if name.endswith(_FILES) and isinstance(value, str) and value.strip():
            found[name] = os.path.normpath(base / value)
    return found


def _leaves(tables: Mapping[str, object], prefix: str) -> Iterable[tuple[str, object]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _show_raw(raw: object) -> str:
    """Returns a value as a person wrote it, short."""
    match raw:
        case bool():
            text = str(raw).lower()
        case int():
            text = f"{raw:,}"
        case str():
            text = f'"{raw}"'
        case Mapping():
            text = ", ".join(map(str, raw))  # its values may be secrets
        case list() | tuple():
            text = "[" + ", ".join(_show_raw(item) for item in raw) + "]"
        case _:
            text = str(raw)
    return text if len(text) <= 200 else text[:200] + "..."
