"""Values whose schemas are in a registry: Confluent's wire format, and the HTTP interface that its registry and others have.

The bytes of a value: 0, the id of its schema (4 bytes, big-endian), and the value itself as JSON, Avro or Protocol Buffers.

A schema is asked for once, in the thread that meets it first, which waits `timeout_ms` at most: in a client that is the thread of its
event loop.  Who cannot have that calls `encode` of a codec once before, in a thread of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from replog.codecs.chosen import codec_of
from replog.codecs.plain_values import Reference, Schema, plain_bytes, plain_value, validate_json
from replog.errors import ConfigError, RegistryNotAvailableError
from replog.errors.choices import require_at_least, require_kind

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from replog.codecs.value_codec import ValueCodec

T = TypeVar("T")
M = TypeVar("M", bound="Message")

MAGIC: Final = 0
PREFIX_BYTES: Final = 5
ANSWER_BYTES_MAX: Final = 1 << 20
SCHEMAS_MAX: Final = 1_000
"""Schemas that a client keeps; the oldest goes first, and is asked for again."""

PAUSE_S: Final = 1.0
"""How long nothing is asked for after a failure: whoever would wait is told of it."""

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
IMPORTS_DEPTH_MAX: Final = 100
_SERIALIZED: Final = "format=serialized"
"""What asks for a descriptor where the registry has the text of a .proto file."""

_RULE_MODES: Final = ("WRITE", "READ", "WRITEREAD")
_NOT_FOUND: Final = 404
_REFUSED: Final = (409, 422)
"""What a registry answers about a schema that is none, or is not compatible with those before it."""


class SchemaRegistry:
    """A registry of schemas, and the codecs whose schemas it has.

    ::

        registry = SchemaRegistry("http://127.0.0.1:8081")
        Producer(servers, value=registry.json(Order, subject="orders-value"))
        Consumer(servers, value=registry.avro(SCHEMA, subject="orders-value", kind=Order))

    Args:
        url: Where it is, http or https.
        headers: Further headers of each request, such as one that authenticates.
        timeout_ms: How long an answer may take, milliseconds.

    Raises:
        ConfigError: A setting is wrong.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout_ms: int = 2_000) -> None:
        require_kind("url", url, str)
        require_at_least("timeout.ms", timeout_ms, 1)
        if "@" in url:
            raise ConfigError(
                "url",
                None,
                "url has a name or a password in it, which nobody is sent and each error would show: give headers={'Authorization': ...}",
            )
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ConfigError("url", url, f"url is {url!r}; it must begin with http:// or https://")
        self._url = url.rstrip("/")
        own = _checked(headers or {})
        self._headers = _HiddenHeaders({"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE, **own})
        self._timeout_s = timeout_ms / 1_000
        self._schemas: dict[int, Schema] = {}
        self._paused_until_s = 0.0
        self._failure = ""

    def json(self, kind: type[T], *, subject: str, validate: bool = False) -> RegistryCodec[T]:
        """Returns a codec of JSON; the schema is made of the type.

        Args:
            kind: A class with fields, or a pydantic model.
            subject: The name under which the schema is registered, such as "orders-value".
            validate: Whether what is read must be of the schema with which it was written, beside being of the class (extra `registry`).
        """
        codec: ValueCodec[T] | None = codec_of("kind", kind)
        if codec is None or kind is str:
            raise ConfigError("kind", kind, f"kind is {kind.__name__}, which has no fields to make a schema of")
        model_schema = getattr(kind, "model_json_schema", None)
        schema = msgspec.json.schema(kind) if model_schema is None else model_schema()
        decode = codec.decode

        def load(written_with: Schema, data: bytes) -> T:
            if validate:
                validate_json(written_with, msgspec.json.decode(data))
            return decode(data)

        return self._codec(subject, Schema("JSON", json.dumps(schema)), codec.encode, load)

    def json_schema(self, schema: str, *, subject: str, validate: bool = False) -> RegistryCodec[Any]:
        """Returns a codec of JSON whose values are plain objects.

        Args:
            schema: The schema, as JSON.
            subject: The name under which it is registered.
            validate: Whether values must be of their schema, when they are written and when they are read (extra `registry`).
        """
        own = Schema("JSON", schema)

        def dump(value: Any) -> bytes:
            return plain_bytes(own, value) if validate else msgspec.json.encode(value)

        def load(written_with: Schema, data: bytes) -> Any:
            value = plain_value(written_with, data)
            if validate:
                validate_json(written_with, value)
            return value

        return self._codec(subject, own, dump, load)

    @overload
    def avro(self, schema: str, *, subject: str) -> RegistryCodec[Any]: ...

    @overload
    def avro(self, schema: str, *, subject: str, kind: type[T]) -> RegistryCodec[T]: ...

    def avro(self, schema: str, *, subject: str, kind: Any = Any) -> RegistryCodec[Any]:
        """Returns a codec of Avro (extra `registry`).

        Args:
            schema: The schema of values as they are here, as JSON.  What was written with another one becomes that of this one.
            subject: The name under which it is registered.
            kind: The class that the values are made to, by the names of its fields; without one they are dicts.

        Raises:
            ConfigError: The package fastavro is not installed, or the schema is none.
        """
        try:
            from replog.codecs.avro_binary import Avro
        except ImportError as error:
            raise ConfigError("avro", schema, "Avro needs fastavro: pip install 'replog[registry]'") from error
        avro = Avro(schema, kind)
        return self._codec(subject, Schema("AVRO", schema), avro.encode, avro.decode)

    def protobuf(self, kind: type[M], *, subject: str) -> RegistryCodec[M]:
        """Returns a codec of messages of Protocol Buffers.

        What the message's file imports is registered with it, each file under its own name; what comes with every implementation is not.

        Args:
            kind: The class of the messages.
            subject: The name under which its file is registered.

        Raises:
            ConfigError: It is no class of messages.
        """
        from google.protobuf.message import Message

        from replog.codecs.protobuf_binary import Protobuf

        if not issubclass(kind, Message):
            raise ConfigError("kind", kind, f"kind is {kind!r}; it must be a class that protoc has made of a message")
        protobuf = Protobuf(kind)

        def schema() -> Schema:
            return self._file_schema(kind.DESCRIPTOR.file)

        def load(written_with: Schema, data: bytes) -> Any:
            return protobuf.decode(written_with.text, data)

        return RegistryCodec(self, subject, "PROTOBUF", schema, protobuf.encode, load)

    def plain(self, *, subject: str = "") -> PlainCodec:
        """Returns a codec of plain objects, which reads values of any schema that the registry has (extra `registry`).

        Args:
            subject: The subject whose last schema values are written with; "": it only reads.
        """
        return PlainCodec(self, subject)

    def _codec(
        self, subject: str, schema: Schema, dump: Callable[[T], bytes], load: Callable[[Schema, bytes], T]
    ) -> RegistryCodec[T]:
        return RegistryCodec(self, subject, schema.kind, lambda: schema, dump, load)

    def _file_schema(self, file: Any) -> Schema:
        """Returns the schema of a file of Protocol Buffers, once what it imports is registered."""
        from replog.codecs.protobuf_binary import file_text, imports_of

        references = []
        for imported in imports_of(file):
            schema = self._file_schema(imported)
            self.register(imported.name, schema)
            path = f"/subjects/{quote(imported.name, safe='')}"
            version = self._ask(path, _body(schema), lambda told: int(told["version"]))
            references.append(Reference(imported.name, imported.name, version))
        return Schema("PROTOBUF", file_text(file), tuple(references))

    def register(self, subject: str, schema: Schema) -> int:
        """Returns the id of a schema, which is registered if it is new.

        Raises:
            ValueError: The registry does not take it, or has rules for who writes its values, which nobody here would execute.
            RegistryNotAvailableError: It does not answer, or cannot say.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        schema_id, rules = self._ask(path, _body(schema), lambda told: (int(told["id"]), _rules(told)))
        _require_no_rules(schema_id, rules, "WRITE")
        return schema_id

    def schema(self, schema_id: int) -> Schema:
        """Returns a schema to read with by its id, with what it refers to.

        Raises:
            ValueError: There is none, or it has rules for who reads its values, which nobody here would execute.
            RegistryNotAvailableError: It does not answer, or cannot say.
        """
        found = self._schemas.get(schema_id)
        if found is None:
            found = self._with_imports(self._told(f"/schemas/ids/{schema_id}")[1])
            while len(self._schemas) >= SCHEMAS_MAX:
                del self._schemas[next(iter(self._schemas))]
            self._schemas[schema_id] = found
        _require_no_rules(schema_id, found.rules, "READ")
        return found

    def latest(self, subject: str) -> tuple[int, Schema]:
        """Returns the id and the schema of the last version of a subject; it is asked for anew each time.

        Raises:
            ValueError: There is none.
            RegistryNotAvailableError: It does not answer, or cannot say.
        """
        schema_id, schema = self._told(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return schema_id, self._with_imports(schema)

    def _told(self, path: str, more: str = "") -> tuple[int, Schema]:
        """Returns id and schema as a path tells it; of Protocol Buffers that is the descriptor, whatever was registered."""
        found = self._ask(f"{path}?{more}".rstrip("?"), None, lambda told: (int(told.get("id", 0)), _schema(told)))
        if found[1].kind == "PROTOBUF" and not more.startswith(_SERIALIZED):
            from replog.codecs.protobuf_binary import file_of

            if file_of(found[1].text) is None:
                return self._told(path, _SERIALIZED + more)
        return found

    def _with_imports(self, schema: Schema) -> Schema:
        """Returns a schema with the texts of what it refers to, each after what it refers to itself."""
        found: dict[str, str] = {}

        def follow(references: tuple[Reference, ...], depth: int) -> None:
            for name, subject, version in references:
                if name in found:
                    continue
                if depth > IMPORTS_DEPTH_MAX or len(found) >= SCHEMAS_MAX:
                    raise ValueError(
                        f"its schema refers to more than {SCHEMAS_MAX} others, or deeper than {IMPORTS_DEPTH_MAX}"
                    )
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
                imported = self._told(path, "&deleted=true")[1]
                follow(imported.references, depth + 1)
                found[name] = imported.text

        follow(schema.references, 0)
        return schema._replace(imports=tuple(found.items()))

    def _ask(self, path: str, body: object, read: Callable[[Any], T]) -> T:
        """Returns what `read` makes of an answer; None as `body`: nothing is sent."""
        if time.monotonic() < self._paused_until_s:
            raise RegistryNotAvailableError(self._failure)
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, self._headers)  # noqa: S310 -- http or https, see __init__
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310 -- likewise
                return read(json.loads(answer.read(ANSWER_BYTES_MAX)))
        except HTTPError as error:
            with error:
                told = error.read(ANSWER_BYTES_MAX).decode(errors="replace")[:500]
            if error.code in _REFUSED or (error.code == _NOT_FOUND and body is None):
                raise ValueError(f"the registry at {self._url} answers {path} with {error.code}: {told}") from None
            raise self._not_available(path, f"{error.code} {told}") from error
        except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._not_available(path, f"{type(error).__name__}: {error}") from error

    def _not_available(self, path: str, why: str) -> RegistryNotAvailableError:
        self._failure = (
            f"the registry at {self._url} does not answer {path} as one does ({why}). It is asked again a second later; "
            "see that it runs, and that the url is its own"
        )
        self._paused_until_s = time.monotonic() + PAUSE_S
        return RegistryNotAvailableError(self._failure)


class _HiddenHeaders(dict[str, str]):
    """Headers of requests; nothing shows them, for one may authenticate."""

    def __repr__(self) -> str:
        return "[hidden]"


def _checked(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns headers that can be sent; raises ConfigError where one cannot, without its value."""
    for name, value in headers.items():
        if not (isinstance(value, str) and value.isascii() and value.isprintable()):
            problem = f"the header {name} has a value that is no printable ASCII: perhaps it ends with that of a line"
            raise ConfigError("headers", None, problem)
    return headers


def _body(schema: Schema) -> dict[str, object]:
    body: dict[str, object] = {"schema": schema.text}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [each._asdict() for each in schema.references]
    return body


def _schema(told: Any) -> Schema:
    references = (
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in told.get("references") or ()
    )
    return Schema(told.get("schemaType") or "AVRO", str(told["schema"]), tuple(references), rules=_rules(told))


def _rules(told: Any) -> tuple[tuple[str, str], ...]:
    """Returns name and mode of the rules for values; those of migrations are for readers that read with another version."""
    given = told.get("ruleSet") or {}
    every = (rule for name in ("domainRules", "encodingRules") for rule in given.get(name) or ())
    return tuple((str(rule["name"]), str(rule.get("mode"))) for rule in every if not rule.get("disabled"))


def _require_no_rules(schema_id: int, rules: tuple[tuple[str, str], ...], mode: str) -> None:
    """Raises ValueError where values would be written, or read, without the rules that were agreed on for that."""
    if names := [name for name, given in rules if mode in given or given not in _RULE_MODES]:
        raise ValueError(
            f"its schema {schema_id} has the rules {', '.join(names)[:200]} for who would {mode.lower()} its values, and replog's codecs "
            "execute none: use a client that does, such as Confluent's"
        )


def schema_id_of(data: bytes) -> int:
    """Returns the id of the schema at the beginning of bytes; raises ValueError where there is none."""
    if len(data) < PREFIX_BYTES or data[0] != MAGIC:
        raise ValueError(f"it begins with {data[:PREFIX_BYTES]!r}, not with 0 and the id of a schema")
    return int.from_bytes(data[1:PREFIX_BYTES], "big")


class PlainCodec:
    """A codec of plain objects by whatever schemas the registry has.

    Args:
        registry: What has the schemas.
        subject: The subject whose last schema values are written with; "": none are written.
    """

    def __init__(self, registry: SchemaRegistry, subject: str) -> None:
        self._registry = registry
        self._subject = subject
        self._written_with: tuple[int, Schema] | None = None

    def encode(self, value: Any, /) -> bytes:
        """Returns the bytes of a value, by the schema that was the last one when the first value was written.

        Raises:
            ValueError, TypeError, KeyError: It is not of the schema, or there is none, or it has rules that nobody here would execute.
            RegistryNotAvailableError: The registry does not answer.
        """
        if not self._subject:
            raise TypeError("this codec only reads: name the subject whose schema values are written with")
        if self._written_with is None:
            found = self._registry.latest(self._subject)
            _require_no_rules(found[0], found[1].rules, "WRITE")
            self._written_with = found
        schema_id, schema = self._written_with
        return bytes([MAGIC]) + schema_id.to_bytes(4, "big") + plain_bytes(schema, value)

    def decode(self, data: bytes, /) -> Any:
        """Returns the value of bytes.  Raises: As `plain_value`, and RegistryNotAvailableError where the registry does not answer."""
        return plain_value(self._registry.schema(schema_id_of(data)), data[PREFIX_BYTES:])


class RegistryCodec(Generic[T]):
    """A codec whose bytes begin with the id of their schema.

    Args:
        registry: What has the schemas.
        subject: The name under which that of what is encoded is registered.
        kind: The kind of that schema.
        schema: The function that makes it, when the first value is written.
        dump: The function that makes bytes of a value.
        load: The function that makes a value of bytes, by the schema with which they were written.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        subject: str,
        kind: str,
        schema: Callable[[], Schema],
        dump: Callable[[T], bytes],
        load: Callable[[Schema, bytes], T],
    ) -> None:
        require_kind("subject", subject, str)
        self._registry = registry
        self._subject = subject
        self._kind = kind
        self._schema = schema
        self._dump = dump
        self._load = load
        self._prefix = b""  # once the id is known

    def __repr__(self) -> str:
        return f"{self._kind} of {self._subject}"

    def encode(self, value: T, /) -> bytes:
        """Returns the bytes of a value; the first call registers the schema.

        Raises:
            ValueError, TypeError: The value is not of the schema, or the registry does not take the schema.
            RegistryNotAvailableError: The registry does not answer.
        """
        data = self._dump(value)
        if not self._prefix:
            self._prefix = bytes([MAGIC]) + self._registry.register(self._subject, self._schema()).to_bytes(4, "big")
        return self._prefix + data

    def decode(self, data: bytes, /) -> T:
        """Returns the value of bytes.

        Raises:
            ValueError: They do not begin with the id of a schema of the same kind, or are not of that.
            RegistryNotAvailableError: The registry does not answer.
        """
        schema_id = schema_id_of(data)
        schema = self._registry.schema(schema_id)
        if schema.kind != self._kind:
            raise ValueError(f"its schema {schema_id} is one of {schema.kind}, not of {self._kind}")
        return self._load(schema, data[PREFIX_BYTES:])
