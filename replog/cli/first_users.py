"""Users as `--add-scram` names them, in the words of Apache Kafka's kafka-storage (KIP-900)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from replog.access.credentials import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, check_user_name
from replog.access.scram import credential_of, new_salt, salted_password
from replog.cli.errors import UsageError
from replog.errors import InvalidRequestError
from replog.metadata.records import UserScramCredentialRecord

OPTION = "--add-scram"

_NAMES = ("name", "password", "iterations", "salt", "saltedpassword")
_SHAPE = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]", re.DOTALL)


def first_user(text: str) -> UserScramCredentialRecord:
    """Returns the record of `SCRAM-SHA-256=[name=alice,password=...]`.

    Instead of `password` there may be `salt` and `saltedpassword`, in base64; `iterations` is 4,096 where it is not said.

    Raises:
        UsageError: The text is none; the error repeats nothing of it, for there is a password in it.
    """
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise _wrong("is not SCRAM-SHA-256=[name=...,password=...] or the same of SCRAM-SHA-512")
    mechanism = next(each for each in ScramMechanism if each.sasl_name == found[1])
    values = _values(found[2])
    try:
        check_user_name(values.get("name", ""))
    except InvalidRequestError as error:
        raise _wrong(f"names no user: {error}") from None
    iterations = values.get("iterations", str(ITERATIONS_MIN))
    if not re.fullmatch(r"\d{1,6}", iterations) or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise _wrong(f"has iterations that are not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = _decoded("salt", values["salt"]) if "salt" in values else new_salt()
    salted = _salted(mechanism, values, salt, int(iterations))
    kept = credential_of(mechanism, salted, salt, int(iterations))
    return UserScramCredentialRecord(
        values["name"], mechanism, kept.salt, kept.stored_key, kept.server_key, kept.iterations
    )


def _salted(mechanism: ScramMechanism, values: Mapping[str, str], salt: bytes, iterations: int) -> bytes:
    if ("password" in values) == ("saltedpassword" in values):
        raise _wrong("needs either password, or salt and saltedpassword")
    if "password" in values:
        if not values["password"]:
            raise _wrong("has an empty password")
        return salted_password(mechanism, values["password"].encode(), salt, iterations)
    if "salt" not in values:
        raise _wrong("has a saltedpassword without its salt")
    salted = _decoded("saltedpassword", values["saltedpassword"])
    if len(salted) != mechanism.key_bytes:
        raise _wrong(f"has a saltedpassword of {len(salted)} bytes; {mechanism.sasl_name} has {mechanism.key_bytes}")
    return salted


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if not separator or name not in _NAMES or name in values:
            raise _wrong(f"has something beside {', '.join(_NAMES)}, or one of them twice")
        values[name] = value
    return values


def _decoded(name: str, text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except binascii.Error:
        found = b""
    if not found:
        raise _wrong(f"has a {name} that is no base64")
    return found


def _wrong(reason: str) -> UsageError:
    return UsageError(OPTION, "[hidden]", f"{OPTION} {reason}")
