"""JSON, by msgspec: of anything, or checked against a type."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, is_typeddict, overload

import msgspec

T = TypeVar("T")

_encode = msgspec.json.Encoder(
    order="deterministic"
).encode  # so that equal keys are equal bytes, whatever made their dicts


class Json(Generic[T]):
    """JSON: ``Json()`` of anything, ``Json(Order)`` or ``Json(list[int])`` of one type, which is checked.

    The type is one that msgspec knows: a `msgspec.Struct`, a dataclass, a TypedDict, builtins, unions of them.  NaN is written as null,
    which JSON has instead.

    Args:
        kind: The type of the values.

    Raises:
        TypeError: JSON of this type cannot be told from that of another one of it.
    """

    @overload
    def __init__(self: Json[Any]) -> None: ...

    @overload
    def __init__(self, kind: type[T]) -> None: ...

    @overload
    def __init__(self: Json[Any], kind: object) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        self._class = kind if isinstance(kind, type) and kind not in {Any, float} and not is_typeddict(kind) else object
        self._decode = _decoder_of(kind).decode
        if not _takes_null(self._decode):
            self.decode = self._decode  # type: ignore[method-assign]  # one call a record less

    def __repr__(self) -> str:
        return "Json()" if self._kind is Any else f"Json({getattr(self._kind, '__name__', self._kind)})"

    def encode(self, value: T, /) -> bytes:
        """Returns the JSON of a value.

        Raises:
            TypeError: It is not of the type, or has no JSON.
        """
        if not isinstance(value, self._class):
            raise TypeError(f"expected {self._class.__name__}, got {type(value).__name__}")
        return _encode(value)

    def decode(self, data: bytes, /) -> T:
        """Returns the value of JSON.

        Raises:
            ValueError: It is no JSON, not of the type, or null, which a reader would take for a tombstone.
        """
        value: T = self._decode(data)
        if value is None:
            raise ValueError("it is the null of JSON, which cannot be told from a tombstone")
        return value


_building = threading.Lock()


def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Builds a decoder in a thread where no interrupt comes, one at a time.

    msgspec 0.22 keeps what it knows of a class at the class before it knows all.  Another thread that meets it half done ends the
    process by a segmentation fault, and so does whoever decodes after Ctrl-C has interrupted the build of a class that has itself in
    a field.  So its caller waits on a bare lock, which Ctrl-C may interrupt, and the build goes on to its end.

    Raises:
        Exception: What msgspec raises for a type that it does not know.
    """
    made: list[msgspec.json.Decoder[Any] | Exception] = []
    ended = threading.Lock()

    def build() -> None:
        try:
            with _building:
                made.append(msgspec.json.Decoder(kind))
        except Exception as error:  # noqa: BLE001 -- the caller raises it
            made.append(error)
        ended.release()

    ended.acquire()
    _thread.start_new_thread(build, ())
    ended.acquire()
    (found,) = made
    if isinstance(found, Exception):
        raise found
    return found


def _takes_null(decode: Callable[[bytes], object]) -> bool:
    try:
        return decode(b"null") is None
    except msgspec.MsgspecError:
        return False


class ModelJson:
    """The JSON of a pydantic model, by its own rules and aliases.

    Args:
        kind: The class of the model, of which only two methods are used: pydantic need not be installed.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self.decode: Callable[[bytes], Any] = kind.model_validate_json

    def __repr__(self) -> str:
        return f"{self._kind.__name__}"

    def encode(self, value: Any, /) -> bytes:
        """Returns the JSON of a model.

        Raises:
            TypeError: It is one of another class.
        """
        if not isinstance(value, self._kind):
            raise TypeError(f"expected {self._kind.__name__}, got {type(value).__name__}")
        text: str = value.model_dump_json(by_alias=True)
        return text.encode()
