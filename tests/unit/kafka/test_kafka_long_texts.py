"""Error texts that are longer than a string of the protocol may be: each answer can be written, in each version."""

from __future__ import annotations

import typing
from typing import Any, get_args, get_origin

import pytest
from msgspec import Struct
from msgspec.structs import fields

from replog.errors import ErrorCode
from replog.protocol.handlers.node import MESSAGE_CHARACTERS_MAX, Failure, text
from replog.protocol.private import PrivateApi
from replog.protocol.served import SERVED, Served
from replog.wire.primitives import Reader, Writer

LONG = "a topic named " + "\N{EURO SIGN}" * 100_000 + " is unknown"


def one_of_each(cls: type[Struct]) -> Any:
    """A message whose arrays have one element each, so that each error of an answer is there."""
    message, hints = cls(), typing.get_type_hints(cls)
    for each in fields(cls):
        hint = next((one for one in (hints[each.name], *get_args(hints[each.name])) if get_origin(one) is list), None)
        if hint is not None:
            (element,) = get_args(hint)
            is_message = isinstance(element, type) and issubclass(element, Struct)
            setattr(message, each.name, [one_of_each(element)] if is_message else [])
    return message


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_a_request_that_fails_for_a_long_reason_is_answered_in_each_version(api: Served) -> None:
    if isinstance(api.load().request, PrivateApi):
        answer = Writer()
        api.load().refuse(None, Failure(ErrorCode.INVALID_REQUEST, LONG)).write(answer, 0)
        assert answer.joined()
        return
    everything = one_of_each(api.load().request)
    for version in api.versions:
        sent, answer = Writer(), Writer()
        everything.write(sent, version)
        request = api.load().request.read(Reader(memoryview(sent.joined())), version)
        api.load().refuse(request, Failure(ErrorCode.INVALID_REQUEST, LONG)).write(answer, version)
        assert answer.joined()


def test_both_ends_of_a_long_text_are_told() -> None:
    told = text(LONG)
    assert told is not None
    assert len(told) == MESSAGE_CHARACTERS_MAX
    assert told.startswith("a topic named ")
    assert told.endswith(" is unknown")


def test_a_text_that_is_short_enough_stays_as_it_is() -> None:
    assert text(LONG[:MESSAGE_CHARACTERS_MAX]) == LONG[:MESSAGE_CHARACTERS_MAX]
    assert text("") is None
