"""The file that says how commands and brokers are believed by each other: Kafka's names, in TOML.

    security.protocol = "SASL_SSL"
    ssl.ca.location = "ca.pem"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "alice"
    sasl.password = "${file:alice.password}"

Values may stand elsewhere (`replog.config.references`).  Paths in it are seen from the folder that it is in.  It is read by the first command that connects.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replog.errors import ConfigError

if TYPE_CHECKING:
    from replog.client import Security

CONFIG_VARIABLE: Final = "REPLOG_CLIENT_CONFIG"
FILE_BYTES_MAX: Final = 1 << 20
SECRETS: Final = (".password", ".jaas.config")
"""Ends of the names of settings with a password in them."""

_given: list[Path] = []
"""The file of this command line, if there is one: one command line per process."""


def use(path: Path | None) -> None:
    """Makes a file that of this command line; None: none, and clients speak plain text."""
    _given[:] = [] if path is None else [path]


def security() -> Security | None:
    """Returns what the file says; None where there is none.

    Raises:
        ConfigError: It cannot be read, or says what there is not.
    """
    return read(_given[0]) if _given else None


def read(path: Path) -> Security:
    """Reads a file.

    Raises:
        ConfigError: It cannot be read, is no TOML, or has a setting that is wrong.  No value is shown.
    """
    from replog.client import Security
    from replog.config.references import Resolved, resolve
    from replog.host.private_files import warn_if_open

    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    if len(text) > FILE_BYTES_MAX:
        raise _wrong(path, f"has more than {FILE_BYTES_MAX} bytes: is it the file of settings of clients?")
    try:
        given = dict(_dotted(tomllib.loads(text.decode())))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _wrong(path, f'is no TOML ({type(error).__name__}): write KEY = "VALUE" on each line') from None
    resolved = Resolved({}, {})
    try:
        resolved = resolve(given, path.parent)
        if any(name.endswith(SECRETS) and name not in resolved.references for name in given):
            warn_if_open(path, "a password")
        found = dict(resolved.values)
        for name, value in found.items():
            if name.endswith(".location") and isinstance(value, str):
                found[name] = str(path.parent / value)
        return Security.from_settings(found)
    except ConfigError as error:
        raise ConfigError(error.field, None, f"{path}: {resolved.hidden(error)}") from None


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of nested tables by their names with dots, as TOML writes and nests them."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _wrong(path: Path, reason: str) -> ConfigError:
    return ConfigError("--client-config", str(path), f"--client-config {path} {reason}")
