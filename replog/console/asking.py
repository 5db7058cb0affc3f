"""What a browser asks, parsed within bounds; and how it is answered: JSON that nobody keeps, or lines of JSON as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

import msgspec
from aiohttp import web

from replog.errors import ConfigError, InvalidRequestError, ReplogError

TEXT_MAX: Final = 1_000
"""Characters of a name or a place; a group's name has no more than 32,767 by Kafka, and nobody has that."""

BODY_BYTES_MAX: Final = 64 << 10

NUMBER_MAX: Final = 2**63 - 1

STREAM_S: Final = 600.0
"""A stream that lasts longer is ended; the page goes on with another where somebody still looks."""


def text_of(request: web.Request, name: str, default: str | None = None) -> str:
    """Returns a text of the query.

    Raises:
        InvalidRequestError: It is missing and has no default, or is too long.
    """
    found = request.query.get(name, default)
    if found is None:
        raise InvalidRequestError(f"the query lacks {name}=")
    if len(found) > TEXT_MAX:
        raise InvalidRequestError(f"{name} has {len(found):,} characters; at most {TEXT_MAX:,} are taken")
    return found


def number_of(request: web.Request, name: str, default: int | None = None, *, high: int = NUMBER_MAX) -> int:
    """Returns a number of the query, from 0 to `high`.

    Raises:
        InvalidRequestError: It is missing and has no default, or is no such number.
    """
    text = text_of(request, name, None if default is None else str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= high):
        raise InvalidRequestError(f"{name}={text} is no number from 0 to {high:,}")
    return int(text)


def offsets_of_text(text: str) -> dict[int, int]:
    """Parses an offset for each of some partitions: `0:17,3:5`; none for an empty text.

    Raises:
        InvalidRequestError: It is something else.
    """
    pairs = [part.partition(":") for part in text.split(",") if part]
    numbers = [(partition, offset) for partition, _, offset in pairs]
    if not all(part.isascii() and part.isdecimal() and len(part) <= 19 for pair in numbers for part in pair):
        raise InvalidRequestError(f'"{text}" is not PARTITION:OFFSET,PARTITION:OFFSET')
    return {int(partition): int(offset) for partition, offset in numbers}


async def body_of(request: web.Request, kind: type[Any]) -> Any:
    """Returns the body of a request as a struct of `kind`.

    Raises:
        InvalidRequestError: It is no JSON, or none of that kind.
    """
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not what {request.path} takes: {error}") from None


def answered(found: object, status: int = 200) -> web.Response:
    """Returns an answer of JSON."""
    return web.Response(body=msgspec.json.encode(found), status=status, content_type="application/json")


def refused(error: BaseException) -> web.Response:
    """Returns the answer that tells of an error: 400 where the question is wrong, 503 where the cluster does not answer."""
    if isinstance(error, TimeoutError):
        return answered({"error": "the brokers take too long to answer; ask for less, or again"}, 504)
    status = 400 if isinstance(error, (InvalidRequestError, ConfigError)) else 503
    return answered({"error": str(error) or type(error).__name__}, status)


async def streamed(
    request: web.Request, lines: AsyncGenerator[Mapping[str, object]], headers: Mapping[str, str]
) -> web.StreamResponse:
    """Sends lines of JSON as they come, until they end, the browser goes away, or `STREAM_S` are over.

    An error is a line too: `{"error": ...}`.
    """
    response = web.StreamResponse(headers={**headers, "Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    last = b""
    with suppress(ConnectionError):  # the browser has gone
        try:
            async with asyncio.timeout(STREAM_S), aclosing(lines):
                async for line in lines:
                    await response.write(msgspec.json.encode(line) + b"\n")
        except TimeoutError:
            last = b'{"ended":"time"}\n'
        except ReplogError as error:
            last = msgspec.json.encode({"error": str(error)}) + b"\n"
        await response.write_eof(last)
    return response
