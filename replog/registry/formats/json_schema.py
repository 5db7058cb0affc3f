"""JSON Schema: whether each value that the writer's schema allows is one that the reader's allows.

The question has no general answer.  Decided is it where the reader's schema is made of types, properties, items, bounds, enums,
`anyOf`, `allOf` and `$ref`; what is not is `Undecided`, with the keyword.  Keywords of the writer's that are not looked at only allow
fewer values, so leaving them out never says "compatible" wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from replog.registry.formats.problems import STEPS_MAX, Undecided, invalid_schema, load_json, sorted_json

_TYPES: Final = ("null", "boolean", "object", "array", "string", "number", "integer")
_ANNOTATIONS: Final = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "$schema",
        "$id",
        "id",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
    )
) | {"definitions", "$defs", "format", "$anchor", "contentEncoding", "contentMediaType", "discriminator"}
_LOOKED_AT: Final = frozenset(
    (
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "allOf",
        "oneOf",
        "$ref",
    )
)
_AT_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_AT_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


class JsonSchema(msgspec.Struct, frozen=True):
    """A schema, and the documents that it refers to, by the names it has for them."""

    schema: Any
    documents: dict[str, Any]


def parse_json_schema(text: str, references: Sequence[tuple[str, str]]) -> JsonSchema:
    """Parses a schema; `references` are names and texts of the documents that it refers to.

    Raises:
        RegistryRefusedError: 42201: it is none of its dialect.
    """
    from jsonschema.validators import validator_for

    schema: Any = load_json(text)
    if type(schema) not in (dict, bool):
        raise invalid_schema("JSON", TypeError("it is no object, true or false"))
    try:
        validator_for(schema).check_schema(schema)
    except Exception as error:  # SchemaError, and what a hostile one makes its library raise
        raise invalid_schema("JSON", error) from error
    return JsonSchema(schema, {name: load_json(referred) for name, referred in references})


def normal_json(text: str, _: JsonSchema) -> str:
    """Returns the text that a schema has in whatever order the members of its objects are."""
    return sorted_json(load_json(text))


def json_problems(reader: JsonSchema, writer: JsonSchema) -> list[str]:
    """Returns why the reader does not allow all that the writer does; nothing: it does.

    Raises:
        Undecided: The reader's schema has something that is not compared.
    """
    if reader == writer:
        return []
    return _Inclusion(reader, writer).problems(reader.schema, writer.schema, "#")


class _Inclusion:
    def __init__(self, reader: JsonSchema, writer: JsonSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._seen: set[tuple[str, str]] = set()
        self._steps_left = STEPS_MAX

    def problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Undecided("the two schemas are too large to be compared")
        if writer is False or reader is True or reader == {}:
            return []
        if reader is False:
            return [f"{path}: the reader allows nothing there"]
        writer = {} if writer is True else writer
        if "$ref" in reader or "$ref" in writer:
            return self._referred_problems(reader, writer, path)
        if branches := _branches(writer):
            return [found for each in branches for found in self.problems(reader, each, path)]
        return self._reader_problems(reader, writer, path)

    def _referred_problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        pair = (str(reader.get("$ref", reader)), str(writer.get("$ref", writer)))
        if pair in self._seen:
            return []
        self._seen.add(pair)
        return self.problems(_resolved(self._reader, reader), _resolved(self._writer, writer), path)

    def _reader_problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        if "enum" in writer or "const" in writer:
            return _value_problems(self._reader, reader, writer, path)
        found = [problem for each in reader.get("allOf", ()) for problem in self.problems(each, writer, path)]
        if "anyOf" in reader:
            found += self._any_problems(reader["anyOf"], writer, path)
        if "oneOf" in reader:
            found += self._one_problems(reader["oneOf"], writer, path)
        if "allOf" in writer:  # one of them, with what is beside it, is enough
            own = {name: value for name, value in writer.items() if name != "allOf"}
            if any(not self._tried(reader, own | part, path) for part in writer["allOf"] if isinstance(part, dict)):
                return found
        return found + self._keyword_problems(reader, writer, path)

    def _tried(self, reader: Any, writer: Any, path: str) -> list[str]:
        seen = self._seen.copy()
        try:
            found = self.problems(reader, writer, path)
        except Undecided as error:
            if self._steps_left < 0:
                raise
            found = [str(error)]
        if found:
            self._seen = seen
        return found

    def _any_problems(self, branches: list[Any], writer: Any, path: str) -> list[str]:
        if any(not self._tried(each, writer, path) for each in branches):
            return []
        return [f"{path}: none of the reader's anyOf takes all of it"]

    def _one_problems(self, branches: list[Any], writer: Any, path: str) -> list[str]:
        """Finds the one branch; the others must be of other types, for of two that fit none is taken."""
        fitting = [each for each in branches if not self._tried(each, writer, path)]
        if not fitting:
            return [f"{path}: none of the reader's oneOf takes all of it"]
        others = [each for each in branches if each is not fitting[0]]
        if any(_types(_resolved(self._reader, each)) & _types(writer) for each in others):
            raise Undecided(f"{path}: oneOf with several branches of one type is not compared")
        return []

    def _keyword_problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        if "enum" in reader or "const" in reader:
            return [f"{path}: the reader allows certain values only"]
        types = _types(writer)
        if missing := types - _types(reader):
            return [f"{path}: the reader does not allow {', '.join(sorted(missing))}"]
        found = _bound_problems(reader, writer, path)
        if "object" in types:
            found += self._object_problems(reader, writer, path)
        if "array" in types and "items" in reader:
            if isinstance(reader["items"], list) or isinstance(writer.get("items"), list) or "prefixItems" in writer:
                raise Undecided(f"{path}: items by place are not compared")
            found += self.problems(reader["items"], writer.get("items", True), f"{path}/items")
        return found

    def _object_problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        own, written = reader.get("properties", {}), writer.get("properties", {})
        more, written_more = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        if writer.get("patternProperties") and (own.keys() - written.keys() or more is not True):
            raise Undecided(f"{path}: patternProperties are not compared")
        needed = set(reader.get("required", ())) - set(writer.get("required", ()))
        found = [f"{path}/{name}: the reader requires it, the writer does not" for name in sorted(needed)]
        for name in own | written:
            if name in own and name not in written and written_more is True and own[name] not in (True, {}):
                found.append(
                    f"{path}/{name}: what the writer allows under this name is not said, so it may be anything"
                )
            else:
                found += self.problems(own.get(name, more), written.get(name, written_more), f"{path}/{name}")
        return found + self.problems(more, written_more, f"{path}/*")


def _resolved(document: JsonSchema, schema: Any) -> Any:
    """Returns the schema behind a `$ref`; one without is returned as it is.

    Raises:
        Undecided: The reference leads nowhere here, or has keywords beside it.
    """
    for _ in range(100):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        reference = schema["$ref"]
        if schema.keys() - _ANNOTATIONS - {"$ref"}:
            raise Undecided(f"{reference}: keywords beside $ref are not compared")
        name, _, pointer = str(reference).partition("#")
        schema = document.schema if not name else document.documents.get(name)
        if name and "'$ref'" in str(schema):
            raise Undecided(f"{reference}: references within another document are not compared")
        for step in filter(None, unquote(pointer).split("/")):
            key = step.replace("~1", "/").replace("~0", "~")
            schema = schema.get(key) if isinstance(schema, dict) else None
        if not isinstance(schema, (dict, bool)):
            raise Undecided(f"{reference}: this reference leads nowhere")
    raise Undecided("a reference leads in a circle")


def _branches(writer: Any) -> list[Any]:
    """Returns the alternatives that a schema consists of; nothing where it has none."""
    for name in ("anyOf", "oneOf"):
        if name in writer:
            own = {key: value for key, value in writer.items() if key != name}
            if own.keys() - _ANNOTATIONS:
                return []  # they only narrow what is beside them
            return list(writer[name])
    if isinstance(writer.get("type"), list):
        return [writer | {"type": each} for each in writer["type"]]
    return []


def _types(schema: Any) -> set[str]:
    if isinstance(schema, bool):
        return set(_TYPES) if schema else set()
    given = schema.get("type", list(_TYPES))
    found = {given} if isinstance(given, str) else set(given)
    return found | {"integer"} if "number" in found else found


def _value_problems(document: JsonSchema, reader: Any, writer: Any, path: str) -> list[str]:
    """Tries each of the few values that the writer allows."""
    from jsonschema.validators import validator_for

    if "$ref" in str(reader):
        raise Undecided(f"{path}: values of an enum are not tried against references")
    validator = validator_for(document.schema if isinstance(document.schema, dict) else {})(reader)
    values = writer["enum"] if "enum" in writer else [writer["const"]]
    return [f"{path}: the reader does not allow {value!r}" for value in values if not validator.is_valid(value)]


def _bound_problems(reader: Any, writer: Any, path: str) -> list[str]:
    found = []
    for name, value in reader.items():
        if name in _ANNOTATIONS or name in _LOOKED_AT:
            continue
        if writer.get(name) == value and not name.startswith("unevaluated") and "'$ref'" not in str(value):
            continue
        if name not in _AT_LEAST and name not in _AT_MOST:
            raise Undecided(f"{path}: the keyword {name} is not compared")
        if not _is_within(name, value, writer.get(name)):
            found.append(f"{path}: {name} of the reader is {value}, of the writer {writer.get(name, 'none')}")
    return found


def _is_within(name: str, value: Any, written: Any) -> bool:
    number: Callable[[Any], bool] = lambda one: isinstance(one, (int, float)) and not isinstance(one, bool)  # noqa: E731
    if not (number(value) and number(written)):
        return False
    return bool(written >= value if name in _AT_LEAST else written <= value)
