"""The configuration of a node: made in code or from a file, checked as a whole, and written back.

A file is TOML; quoted names and tables mean the same::

    "node.id" = 1                                  [node]
    "log.dirs" = ["/var/lib/replog"]               id = 1
    "listeners" = ["127.0.0.1:9092"]
    "replica.lag.time.max.ms" = 10000              [replica.lag]
                                                   time.max.ms = 10000

Nothing here opens a socket or a log directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import force_setattr

from replog.config.checks import check_together
from replog.config.keys import flatten, unknown_key, with_absolute_paths
from replog.config.kinds import Endpoint, VoterAddress
from replog.config.server_keys import KEYS, ProcessRole, ServerKeys
from replog.errors import ConfigError
from replog.metadata.config_keys import FlushPolicy

__all__ = ["Endpoint", "FlushPolicy", "ProcessRole", "ServerConfig", "VoterAddress"]


class ServerConfig(ServerKeys, frozen=True, kw_only=True):
    """All settings of one node, typed and checked.  Build it in code, or with `from_toml` or `from_mapping`.

    Invariants:
        - every value is of its kind and in its range;
        - values that contradict each other do not exist together (`checks`).

    Raises:
        ConfigError: A value is refused; the error names the key, what is wrong with it, its unit, range and default.
    """

    def __post_init__(self) -> None:
        for key in KEYS.values():
            force_setattr(self, key.field_name, key.parse(getattr(self, key.field_name)))
        check_together(self)

    @classmethod
    def from_mapping(
        cls, values: Mapping[str, object], *, overrides: Mapping[str, object] | None = None
    ) -> ServerConfig:
        """Makes a configuration from dotted names, or tables of tables, to values as TOML has them.

        Args:
            values: The values as parsed from a file.
            overrides: Values by dotted name, stronger than `values`.  Texts are read as on a command line: "10" is a
                number for a key that is one.

        Raises:
            ConfigError: A key is unknown, repeated, missing or of a wrong type, out of range, or contradicts another.
        """
        given = flatten(values)
        if "log.dir" in given and "log.dirs" not in given:
            given["log.dirs"] = [given.pop("log.dir")]
        for name, value in (overrides or {}).items():
            key = KEYS.get(name)
            given[name] = key.kind.from_text(value) if key is not None and isinstance(value, str) else value
        for name, value in given.items():
            if name not in KEYS:
                raise unknown_key(name, value, KEYS)
        for key in KEYS.values():
            if key.is_required and key.name not in given:
                raise ConfigError(key.name, None, f"{key.name} is missing ({key.describe()})")
        arguments: dict[str, Any] = {KEYS[name].field_name: value for name, value in given.items()}
        return cls(**arguments)

    @classmethod
    def from_toml(cls, path: str | Path, *, overrides: Mapping[str, object] | None = None) -> ServerConfig:
        """Makes a configuration from a TOML file; see `from_mapping`.

        Folders that the file names by a relative path are looked for beside it, wherever the process was started.

        Raises:
            ConfigError: What `from_mapping` refuses, with the file in front; or it cannot be read or is not TOML.
        """
        try:
            import tomllib  # programs that configure a broker themselves have no file

            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError("config", str(path), f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # not TOML, or not UTF-8
            raise ConfigError("config", str(path), f"{path}: is not TOML: {error}") from error
        try:
            return cls.from_mapping(with_absolute_paths(flatten(values), Path(path).parent), overrides=overrides)
        except ConfigError as error:
            raise ConfigError(error.field, error.value, f"{path}: {error.reason}") from None

    def to_toml(self) -> str:
        """Returns a file that gives this configuration again; keys at their default are left out."""
        given = ((key, getattr(self, key.field_name)) for key in KEYS.values())
        return "".join(f'"{key.name}" = {key.kind.to_toml(value)}\n' for key, value in given if value != key.default)
