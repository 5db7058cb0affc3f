"""Values whose schemas are in a registry, as JSON: what `--registry` of `replog consume` and `replog produce` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from replog.cli.errors import CommandFailedError
from replog.cli.records.record_lines import LineRecord, Lines, Show, WrongLineError
from replog.codecs.registry import SchemaRegistry
from replog.errors import ReplogError
from replog.errors.texts import error_text
from replog.host.extras import install_command

if TYPE_CHECKING:
    from replog.client import ConsumerRecord


def typed_show(show: Show, url: str) -> Show:
    """Returns what shows a record with its value as JSON.

    Args:
        show: What makes a line of a record.
        url: Where the registry is.

    Raises:
        ConfigError: The url is none.
    """
    decode = SchemaRegistry(url).plain().decode

    def shown(record: ConsumerRecord) -> bytes:
        if record.value is None:
            return show(record)
        try:
            value = msgspec.json.encode(_called(decode, record.value))
        except ReplogError:
            raise
        except Exception as error:  # what the codecs of all kinds raise for bytes that are none of theirs
            raise CommandFailedError(
                f"{record.topic}-{record.partition}: the value at offset {record.offset} is none of a schema in the registry at {url}: "
                f"{error_text(error)}. Without --registry it is printed as it is; --from {record.offset + 1} begins behind it"
            ) from error
        return show(record._replace(value=value))

    return shown


class TypedLines:
    """Lines whose values are JSON, and become bytes by the last schema of a subject.

    Args:
        lines: What takes the lines.
        url: Where the registry is.
        subject: The subject.

    Raises:
        ConfigError: The url is none.
    """

    def __init__(self, lines: Lines, url: str, subject: str) -> None:
        self._lines = lines
        self._subject = subject
        self._encode = SchemaRegistry(url).plain(subject=subject).encode

    @property
    def is_open(self) -> bool:
        """Whether the lines to come belong to a record that has begun."""
        return self._lines.is_open

    def record(self, line: bytes) -> LineRecord | None:
        """Returns the record that ends with this line; None: none does.

        Raises:
            WrongLineError: It is none, or its value is not of the schema.
            RegistryNotAvailableError: The registry does not answer.
        """
        found = self._lines.record(line)
        if found is None or found.value is None:
            return found
        try:
            value = _called(self._encode, msgspec.json.decode(found.value))
        except ReplogError:
            raise
        except Exception as error:  # as above
            raise WrongLineError(
                f"has a value that is none of the schema of {self._subject}: {error_text(error)}"
            ) from error
        return msgspec.structs.replace(found, value=value)


def _called(function: Callable[[Any], Any], value: Any) -> Any:
    try:
        return function(value)
    except ModuleNotFoundError as error:
        raise CommandFailedError(f"values with schemas need more packages: {install_command('registry')}") from error
