"""Groups: a page of them at a time; one with members and lags; its offsets put somewhere else, after a preview."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from msgspec import Struct
from msgspec.structs import asdict

from replog.cli.views import group_reset
from replog.client.admin.group_descriptions import PartitionLag
from replog.console.asking import answered, body_of, number_of, text_of
from replog.console.context import ASK_MS, CONTEXT
from replog.errors import InvalidRequestError

ROWS_MAX: Final = 50
"""Groups of one page: the lags of each are asked for."""

PARTITIONS_MAX: Final = 1_000
"""Of one group that are shown, or changed at once."""


class _NewOffset(Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    offset: int


class _Reset(Struct, forbid_unknown_fields=True):
    group: str
    offsets: list[_NewOffset]


async def groups(request: web.Request) -> web.Response:
    """Tells one page of the groups whose name holds a text, with how far each is behind."""
    context = request.app[CONTEXT]
    word, page = text_of(request, "search", ""), number_of(request, "page", 0, high=1_000_000)
    listed = await context.listed_groups()
    found = [each for each in listed if word.lower() in each.group_id.lower()]
    shown = found[page * ROWS_MAX : (page + 1) * ROWS_MAX]
    lags = await context.lags_of(each.group_id for each in shown)
    return answered(
        {
            "groups_count": len(listed),
            "matching_count": len(found),
            "page": page,
            "pages_count": -(-len(found) // ROWS_MAX),
            "groups": [
                {"group_id": each.group_id, "type": each.group_type.value, "state": each.state}
                | summed(lags.get(each.group_id))
                for each in shown
            ],
        }
    )


async def group(request: web.Request) -> web.Response:
    """Tells one group: its members, and how far it has come in each partition."""
    context, name = request.app[CONTEXT], text_of(request, "group")
    described = (await context.admin.describe_groups([name], timeout_ms=ASK_MS))[name]
    lags = await context.admin.group_lag(name, timeout_ms=ASK_MS)
    partitions = [
        asdict(each) | {"owner": None if each.owner is None else each.owner.member_id} for each in lags[:PARTITIONS_MAX]
    ]
    return answered(
        {
            "group": described,
            "now_ms": time.time_ns() // 1_000_000,
            "partitions_count": len(lags),
            "partitions": partitions,
            "history": context.lag_history.of(name),
            **summed(lags),
        }
    )


async def preview(request: web.Request) -> web.Response:
    """Tells where a group would go; changes nothing."""
    context, name = request.app[CONTEXT], text_of(request, "group")
    target, topics = target_of(text_of(request, "to")), text_of(request, "topics", "")
    members_count, committed = await group_reset.standing(context.admin, name, may_be_new=False)
    chosen = [part.strip() for part in topics.split() if part.strip()]
    changes = await group_reset.planned(context.admin, name, target, chosen, committed or {}, all_topics=not chosen)
    if len(changes) > PARTITIONS_MAX:
        raise InvalidRequestError(f"{len(changes):,} partitions: choose topics, at most {PARTITIONS_MAX:,} go at once")
    return answered(
        {
            "members_count": members_count,
            "changes": [asdict(each) | {"difference": each.difference} for each in changes],
        }
    )


async def reset(request: web.Request) -> web.Response:
    """Commits the offsets that a preview has shown, exactly those; a group with members is refused by its coordinator."""
    wanted: _Reset = await body_of(request, _Reset)
    if not 0 < len(wanted.offsets) <= PARTITIONS_MAX:
        raise InvalidRequestError(f"say 1 to {PARTITIONS_MAX:,} offsets")
    offsets: Mapping[tuple[str, int], int] = {(each.topic, each.partition): each.offset for each in wanted.offsets}
    await request.app[CONTEXT].admin.alter_group_offsets(wanted.group, offsets, timeout_ms=ASK_MS)
    return answered({"partitions_count": len(offsets)})


def summed(lags: tuple[PartitionLag, ...] | None) -> dict[str, object]:
    """Returns `lag` and `lag_ms`, the longest, of the partitions in which they are known; None where nothing is told."""
    known = [each.lag for each in lags or () if each.lag is not None]
    ages = [each.lag_ms for each in lags or () if each.lag_ms is not None]
    return {"lag": None if lags is None else sum(known), "lag_ms": max(ages, default=None)}


def target_of(text: str) -> group_reset.Target:
    """Parses where to go: `earliest`, `latest`, `offset:17`, `shift:-100`, `time:2026-01-31T13:00:00Z`.

    Raises:
        InvalidRequestError, UsageError: It is something else.
    """
    kind, _, value = text.partition(":")
    if kind in {"earliest", "latest"}:
        return group_reset.Target(group_reset.Where(kind))
    if kind == "time":
        return group_reset.Target(group_reset.Where.TIME, group_reset.time_ms(value))
    digits = value.removeprefix("-") if kind == "shift" else value
    if kind not in {"offset", "shift"} or not (digits.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise InvalidRequestError(f'"{text}" is none of earliest, latest, offset:N, shift:N and time:TIME')
    return group_reset.Target(group_reset.Where(kind), int(value))
