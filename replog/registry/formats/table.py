"""The kinds of schemas that there are, and the rules of the compatibility levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from replog.registry.formats.avro import avro_problems, normal_avro, parse_avro
from replog.registry.formats.json_schema import json_problems, normal_json, parse_json_schema
from replog.registry.formats.problems import Undecided, canonical_json, invalid_schema
from replog.registry.formats.protobuf import normal_protobuf, parse_protobuf, protobuf_problems
from replog.registry.model import CompatibilityLevel, SchemaKind

References = tuple[tuple[str, str], ...]
"""Names and texts of what a schema refers to, each after what it refers to itself."""


class SchemaFormat(NamedTuple):
    """What can be done with schemas of a kind.

    Attributes:
        canonical: The text that equal schemas share.
        normal: The text that all spellings of a schema share, of a text that was parsed and what came of it.
        parse: The schema in a text, with what it refers to; RegistryRefusedError where it is none.
        problems: Why the first does not read what the second wrote; Undecided where that is not known.
    """

    canonical: Callable[[str], str]
    normal: Callable[[str, Any], str]
    parse: Callable[[str, Sequence[tuple[str, str]]], Any]
    problems: Callable[[Any, Any], list[str]]


FORMATS: Final[Mapping[SchemaKind, SchemaFormat]] = {
    SchemaKind.AVRO: SchemaFormat(canonical_json, normal_avro, parse_avro, avro_problems),
    SchemaKind.JSON: SchemaFormat(canonical_json, normal_json, parse_json_schema, json_problems),
    SchemaKind.PROTOBUF: SchemaFormat(str.strip, normal_protobuf, parse_protobuf, protobuf_problems),
}


class ParsableSchema(NamedTuple):
    """A schema with everything that is needed to parse it."""

    kind: SchemaKind
    text: str
    references: References


@lru_cache(maxsize=256)
def parsed(schema: ParsableSchema) -> Any:
    """Returns a schema as its kind parses it; raises RegistryRefusedError where it is none."""
    return FORMATS[schema.kind].parse(schema.text, schema.references)


def normal_text(schema: ParsableSchema) -> str:
    """Returns the text that all spellings of a schema share; raises RegistryRefusedError where it is none."""
    try:
        return FORMATS[schema.kind].normal(schema.text, parsed(schema))
    except RecursionError as error:
        raise invalid_schema(schema.kind, error) from error


def incompatibilities(new: ParsableSchema, earlier: Sequence[ParsableSchema], level: CompatibilityLevel) -> list[str]:
    """Returns why a schema may not follow others; nothing: it may.

    Args:
        new: The schema.
        earlier: Those before it, the oldest first.
        level: Which of them it must get on with, and how.
    """
    if level is CompatibilityLevel.NONE:
        return []
    name = level.removesuffix("_TRANSITIVE")
    others = earlier if name != level else earlier[-1:]
    found = []
    for other in reversed(others):
        if other.kind != new.kind:
            found.append(f"an earlier schema is one of {other.kind}, the new one of {new.kind}")
            continue
        if name in {"BACKWARD", "FULL"}:
            found += _problems(new, other, "the new schema does not read what an earlier one wrote")
        if name in {"FORWARD", "FULL"}:
            found += _problems(other, new, "an earlier schema does not read what the new one writes")
    return found


def _problems(reader: ParsableSchema, writer: ParsableSchema, what: str) -> list[str]:
    try:
        found = FORMATS[reader.kind].problems(parsed(reader), parsed(writer))
    except Undecided as error:
        return [f"it is not known whether {what}: {error}. With compatibility NONE it may be registered"]
    except RecursionError:
        return [
            f"it is not known whether {what}: they are nested too deeply. With compatibility NONE it may be registered"
        ]
    return [f"{what}: {each}" for each in found]
