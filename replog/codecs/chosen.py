"""What `key=` and `value=` of clients and workers stand for."""

from __future__ import annotations

from typing import Any, Final, is_typeddict

import msgspec

from replog.codecs.json_text import Json, ModelJson
from replog.codecs.value_codec import ValueCodec
from replog.errors import ConfigError

ACCEPTED: Final = (
    "Give bytes, str, a class with fields (a msgspec.Struct, a dataclass, a pydantic model), replog.codecs.Json(...), or an object "
    "with encode and decode (docs/RECORDS.md)"
)


class _Utf8:
    """Text; what is no UTF-8 is refused."""

    encode = staticmethod(str.encode)  # refuses what is no str
    decode = staticmethod(bytes.decode)

    def __repr__(self) -> str:
        return "str"


def codec_of(name: str, given: object) -> ValueCodec[Any] | None:
    """Returns the codec that an argument stands for; None for bytes, which need none.

    Args:
        name: The name of the argument, for the error.
        given: A type, or a codec.

    Raises:
        ConfigError: It stands for none.
    """
    if given is bytes:
        return None
    if given is str:
        return _Utf8()
    if isinstance(given, type):
        return _codec_of_class(name, given)
    if _has(given, "encode") and _has(given, "decode"):
        return given  # type: ignore[return-value]  # it has both
    if callable(given):
        raise ConfigError(
            name, given, f"{name} is {given!r}, a function: a codec has two, encode and decode. {ACCEPTED}"
        )
    raise ConfigError(name, given, f"{name} is {given!r} ({type(given).__name__}), which is no codec. {ACCEPTED}")


def _codec_of_class(name: str, kind: Any) -> ValueCodec[Any]:
    if _has(kind, "model_validate_json") and _has(kind, "model_dump_json"):
        return ModelJson(kind)
    if _has_fields(kind):
        return Json(kind)
    shown = kind.__name__
    if _has(kind, "encode") and _has(kind, "decode"):
        reason = f"{name} is the class {shown}: give an object of it, such as {name}={shown}()"
    else:
        reason = f"{name} is {shown}: what bytes its values are is not said. Is it JSON? replog.codecs.Json({shown}). {ACCEPTED}"
    raise ConfigError(name, kind, reason)


def _has_fields(kind: Any) -> bool:
    return (
        issubclass(kind, msgspec.Struct)
        or is_typeddict(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or hasattr(kind, "__dataclass_fields__")
        or hasattr(kind, "__attrs_attrs__")
    )


def _has(given: object, method: str) -> bool:
    return callable(getattr(given, method, None))
