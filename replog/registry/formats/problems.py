"""What the comparisons of schemas share: refusals, and where they stop."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from replog.errors.texts import error_text
from replog.registry.model import INVALID_SCHEMA, RegistryRefusedError

STEPS_MAX: Final = 200_000
"""Pairs of parts that one comparison looks at: unions of unions multiply."""


class Undecided(Exception):  # noqa: N818 -- nothing is wrong
    """Two schemas are nothing that a comparison decides; the text says what in them."""


def invalid_schema(kind: str, error: BaseException) -> RegistryRefusedError:
    """Returns the refusal of what is no schema."""
    if isinstance(error, RegistryRefusedError):
        return error
    why = "it is nested too deeply" if isinstance(error, RecursionError) else error_text(error)
    return RegistryRefusedError(INVALID_SCHEMA, f"Invalid schema of {kind}: {why}")


def canonical_json(text: str) -> str:
    """Returns a text of JSON without blanks between its words; raises RegistryRefusedError where it is none."""
    return msgspec.json.encode(load_json(text)).decode()


def sorted_json(value: object) -> str:
    """Returns a text of JSON without blanks, in which the members of each object are in order."""
    return msgspec.json.encode(value, order="deterministic").decode()


def load_json(text: str) -> Any:
    """Returns what a text of JSON stands for.

    Raises:
        RegistryRefusedError: 42201: it is no JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise invalid_schema("JSON", error) from error
