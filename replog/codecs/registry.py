"""Values whose schemas are in a registry: Confluent's wire format, and the HTTP interface that its registry and others have.

The bytes of a value: 0, the id of its schema (4 bytes, big-endian), and the value itself as JSON or Avro.

A schema is asked for once, in the thread that meets it first, which waits `timeout_ms` at most: in a client that is the thread of its
event loop.  Who cannot have that calls `encode` of a codec once before, in a thread of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, overload
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from replog.codecs.chosen import codec_of
from replog.errors import ConfigError, RegistryNotAvailableError
from replog.errors.choices import require_at_least, require_kind

if TYPE_CHECKING:
    from replog.codecs.value_codec import ValueCodec

T = TypeVar("T")

MAGIC: Final = 0
PREFIX_BYTES: Final = 5
ANSWER_BYTES_MAX: Final = 1 << 20
SCHEMAS_MAX: Final = 1_000
"""Schemas that a client keeps; the oldest goes first, and is asked for again."""

PAUSE_S: Final = 1.0
"""How long nothing is asked for after a failure: whoever would wait is told of it."""

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND: Final = 404
_REFUSED: Final = (409, 422)
"""What a registry answers about a schema that is none, or is not compatible with those before it."""


class Schema(NamedTuple):
    """A schema as the registry has it.

    Attributes:
        kind: "AVRO" or "JSON".
        text: The schema.
    """

    kind: str
    text: str


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
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ConfigError("url", url, f"url is {url!r}; it must begin with http:// or https://")
        self._url = url.rstrip("/")
        self._headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE, **(headers or {})}
        self._timeout_s = timeout_ms / 1_000
        self._schemas: dict[int, Schema] = {}
        self._paused_until_s = 0.0
        self._failure = ""

    def json(self, kind: type[T], *, subject: str) -> RegistryCodec[T]:
        """Returns a codec of JSON; the schema is made of the type.

        Args:
            kind: A class with fields, or a pydantic model.
            subject: The name under which the schema is registered, such as "orders-value".
        """
        codec: ValueCodec[T] | None = codec_of("kind", kind)
        if codec is None or kind is str:
            raise ConfigError("kind", kind, f"kind is {kind.__name__}, which has no fields to make a schema of")
        model_schema = getattr(kind, "model_json_schema", None)
        schema = msgspec.json.schema(kind) if model_schema is None else model_schema()
        decode = codec.decode
        return RegistryCodec(
            self, subject, Schema("JSON", json.dumps(schema)), codec.encode, lambda _, data: decode(data)
        )

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
        return RegistryCodec(self, subject, Schema("AVRO", schema), avro.encode, avro.decode)

    def register(self, subject: str, schema: Schema) -> int:
        """Returns the id of a schema, which is registered if it is new.

        Raises:
            ValueError: The registry does not take it.
            RegistryNotAvailableError: It does not answer, or cannot say.
        """
        body = {"schema": schema.text} if schema.kind == "AVRO" else {"schema": schema.text, "schemaType": schema.kind}
        return self._ask(f"/subjects/{quote(subject, safe='')}/versions", body, lambda told: int(told["id"]))

    def schema(self, schema_id: int) -> Schema:
        """Returns a schema by its id.

        Raises:
            ValueError: There is none.
            RegistryNotAvailableError: It does not answer, or cannot say.
        """
        found = self._schemas.get(schema_id)
        if found is None:
            path = f"/schemas/ids/{schema_id}"
            found = self._ask(path, None, lambda told: Schema(told.get("schemaType") or "AVRO", str(told["schema"])))
            while len(self._schemas) >= SCHEMAS_MAX:
                del self._schemas[next(iter(self._schemas))]
            self._schemas[schema_id] = found
        return found

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


class RegistryCodec(Generic[T]):
    """A codec whose bytes begin with the id of their schema.

    Args:
        registry: What has the schemas.
        subject: The name under which that of what is encoded is registered.
        schema: That schema.
        dump: The function that makes bytes of a value.
        load: The function that makes a value of bytes, by the schema with which they were written.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        subject: str,
        schema: Schema,
        dump: Callable[[T], bytes],
        load: Callable[[str, bytes], T],
    ) -> None:
        require_kind("subject", subject, str)
        self._registry = registry
        self._subject = subject
        self._schema = schema
        self._dump = dump
        self._load = load
        self._prefix = b""  # once the id is known

    def __repr__(self) -> str:
        return f"{self._schema.kind} of {self._subject}"

    def encode(self, value: T, /) -> bytes:
        """Returns the bytes of a value; the first call registers the schema.

        Raises:
            ValueError, TypeError: The value is not of the schema, or the registry does not take the schema.
            RegistryNotAvailableError: The registry does not answer.
        """
        data = self._dump(value)
        if not self._prefix:
            self._prefix = bytes([MAGIC]) + self._registry.register(self._subject, self._schema).to_bytes(4, "big")
        return self._prefix + data

    def decode(self, data: bytes, /) -> T:
        """Returns the value of bytes.

        Raises:
            ValueError: They do not begin with the id of a schema of the same kind, or are not of that.
            RegistryNotAvailableError: The registry does not answer.
        """
        if len(data) < PREFIX_BYTES or data[0] != MAGIC:
            raise ValueError(f"it begins with {data[:PREFIX_BYTES]!r}, not with 0 and the id of a schema")
        schema_id = int.from_bytes(data[1:PREFIX_BYTES], "big")
        schema = self._registry.schema(schema_id)
        if schema.kind != self._schema.kind:
            raise ValueError(f"its schema {schema_id} is one of {schema.kind}, not of {self._schema.kind}")
        return self._load(schema.text, data[PREFIX_BYTES:])
