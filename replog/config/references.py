"""Values that stand elsewhere than in a file of settings, so that the file has no secret in it (KIP-297, KIP-421).

| written | stands for |
|---|---|
| `${env:NAME}` | the variable NAME of the environment |
| `${file:PATH:KEY}` | what KEY has in a file of Java's properties |
| `${file:PATH}` | all that is in a file, without the end of its last line |

A relative PATH is seen from the folder of the file of settings.  A reference may be a part of a value; what it stands for is taken as
it is.  Only files of the machine are read with it, never what a client sends, so that nothing has to be switched on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from replog.errors import ConfigError
from replog.host.private_files import warn_if_open

FILE_BYTES_MAX: Final = 1 << 20
"""Size of the largest file that is read."""

TELLING: Final = 4
"""Characters of a value that stand in a text by no chance."""

_REFERENCE: Final = re.compile(r"\$\{([^}:]*):([^}]*)\}")
_LINE: Final = re.compile(r"[ \t\f]*(?:[#!][^\r\n]*|((?:\\(?:\r\n|.)|[^\\\r\n])*))(?:\r\n|\r|\n|\Z)", re.DOTALL)
_PROPERTY: Final = re.compile(r"((?:\\(?:\r\n|.)|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(?:\r\n|\r|\n)[ \t\f]*|(.))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Resolved(Struct, frozen=True):
    """Settings without references.

    Attributes:
        values: The values by their names.
        references: What the file has for those values that had a reference, by their names.
    """

    values: Mapping[str, object]
    references: Mapping[str, object]

    def hidden(self, error: ConfigError) -> ConfigError:
        """Returns an error about these values that shows none of a reference."""
        text = str(error)
        own = [name for name in self.references if f".{name}".endswith(f".{error.field}")]
        told = own or [name for name in self.references if self._is_shown(name, text)]
        if not told:
            return error
        shown = ", ".join(f"{name} = {_shown(self.references[name])}" for name in told)
        return ConfigError(
            error.field,
            None,
            f"{shown}: the value is refused. Why is not shown, since that may tell the value: write one that is no secret in its place",
        )

    def _is_shown(self, name: str, text: str) -> bool:
        value = self.values[name]
        texts = value if isinstance(value, list) else [value]
        return name in text or any(str(each) in text for each in texts if len(str(each)) >= TELLING)


def resolve(values: Mapping[str, object], folder: Path) -> Resolved:
    """Puts in what references stand for.

    A file that others than its owner may read is told in the log.

    Args:
        values: The settings by their names with dots; lists may have references in their texts.
        folder: The folder from which relative names of files are seen.

    Raises:
        ConfigError: A variable, a file or a key of a file is not there; the error names it and no value.
    """
    found: dict[str, object] = {}
    references: dict[str, object] = {}
    for name, value in values.items():
        texts = value if isinstance(value, list) else [value]
        found[name] = value
        if any(isinstance(each, str) and _REFERENCE.search(each) for each in texts):
            put_in = [_put_in(name, each, folder) if isinstance(each, str) else each for each in texts]
            found[name] = put_in if isinstance(value, list) else put_in[0]
            references[name] = value
    return Resolved(found, references)


def _shown(value: object) -> str:
    """Returns the references in a value and nothing else: beside them may stand another part of a secret."""
    return ", ".join(match.group() for match in _REFERENCE.finditer(str(value)))


def _put_in(name: str, text: str, folder: Path) -> str:
    return _REFERENCE.sub(lambda match: _stands_for(name, match, folder), text)


def _stands_for(name: str, reference: re.Match[str], folder: Path) -> str:
    kind, rest = reference.groups()
    if kind == "env":
        found = os.environ.get(rest)
        if found is None:
            raise _missing(name, reference, f"there is no variable {rest} in the environment of this process: set it")
        return found
    if kind != "file":
        raise _missing(
            name,
            reference,
            f'"{kind}" is none of env and file. A value that begins so is written into a file, and ${{file:PATH}} names it',
        )
    path, _, key = rest.partition(":")
    text = _text_of(name, reference, folder / path)
    if not key:
        return text.removesuffix("\n").removesuffix("\r")
    found = properties(text).get(key)
    if found is None:
        raise _missing(name, reference, f"{folder / path} has no line {key}=VALUE: add it")
    return found


def _text_of(name: str, reference: re.Match[str], path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise _missing(name, reference, f"{path} has more than {FILE_BYTES_MAX:,} bytes: is it the right file?")
        warn_if_open(path, f"what {name} has")
        return data.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise _missing(name, reference, f"{path} cannot be read: {reason}") from None


def _missing(name: str, reference: re.Match[str], reason: str) -> ConfigError:
    return ConfigError(name, None, f"{name} = {reference.group()}: {reason}")


def properties(text: str) -> dict[str, str]:
    """Reads Java's properties: lines KEY=VALUE, comments behind # or !, escapes and continued lines by a backslash.

    Args:
        text: The text of the file.
    """
    lines = (match[1] for match in _LINE.finditer(text) if match[1])
    pairs = (match.groups() for match in map(_PROPERTY.fullmatch, lines) if match is not None)
    return {_unescaped(key): _unescaped(value) for key, value in pairs}


def _unescaped(text: str) -> str:
    def unescaped(found: re.Match[str]) -> str:
        code, character = found.groups()
        return chr(int(code, 16)) if code else _ESCAPED.get(character or "", character or "")

    return _ESCAPE.sub(unescaped, text)
