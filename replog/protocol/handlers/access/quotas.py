"""Quotas of clients are described and altered: DescribeClientQuotas, AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from replog.controller.requests import AlterClientQuotas, AlteredQuota, AlteredQuotaEntity, QuotaEntityResult
from replog.errors import InvalidRequestError, UnsupportedVersionError
from replog.metadata.config_keys import shortened
from replog.metadata.quotas import ADDRESS, CLIENT_ID, USER, QuotaEntity
from replog.metadata.records import QuotaEntityPart
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, in_steps, require_few
from replog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from replog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""How a filter meets a part of an entity: its name, that it is the default, that it is there."""

PARTS_MAX = 3
"""How many kinds of parts there are."""

Entry = DescribeClientQuotasResponse.EntryData


# ---- describe --------------------------------------------------------------------------------------------------------


async def describe_client_quotas(
    node: KafkaNode, request: DescribeClientQuotasRequest, _call: Call
) -> DescribeClientQuotasResponse:
    """Returns the quotas of the entities that a filter finds, as this broker knows them."""
    is_wanted = _filter(request)

    def described(each: tuple[QuotaEntity, Mapping[str, float]]) -> Entry | None:
        return _entry(*each) if is_wanted({part.kind: part.name for part in each[0]}) else None

    found = await in_steps(list(node.image.quotas.items()), described)
    return DescribeClientQuotasResponse(error_message=None, entries=[each for each in found if each is not None])


def refuse_describe_client_quotas(
    _request: DescribeClientQuotasRequest, failure: Failure
) -> DescribeClientQuotasResponse:
    """Returns the answer to a request that failed."""
    return DescribeClientQuotasResponse(error_code=failure.code, error_message=failure.message, entries=None)


def _filter(request: DescribeClientQuotasRequest) -> Callable[[Mapping[str, str | None]], bool]:
    """Returns the function that says whether an entity, its names by their kinds, is asked for.

    Raises:
        InvalidRequestError: The filter contradicts itself.
        UnsupportedVersionError: It names a kind that there is not.
    """
    names: dict[str, str | None] = {}
    kinds: set[str] = set()
    for part in request.components:
        if part.entity_type not in (USER, CLIENT_ID, ADDRESS):
            kind = shortened(part.entity_type)
            raise UnsupportedVersionError(f'"{kind}" has no quotas; {USER}, {CLIENT_ID} and {ADDRESS} have')
        if part.entity_type in kinds:
            raise InvalidRequestError(f"the filter names {part.entity_type} twice")
        if part.match_type not in (EXACT, DEFAULT, SPECIFIED) or (part.match is None) is (part.match_type == EXACT):
            problem = (
                "names a kind of match that there is not, or has a name where none belongs, or none where one does"
            )
            raise InvalidRequestError(f"the filter of {part.entity_type} {problem}")
        kinds.add(part.entity_type)
        if part.match_type != SPECIFIED:
            names[part.entity_type] = part.match
    if ADDRESS in kinds and len(kinds) > 1:
        raise InvalidRequestError(f"a quota of an {ADDRESS} is of nothing else")

    def is_wanted(entity: Mapping[str, str | None]) -> bool:
        if not kinds <= entity.keys() or (request.strict and len(entity) > len(kinds)):
            return False
        return all(entity[kind] == name for kind, name in names.items())

    return is_wanted


def _entry(entity: QuotaEntity, limits: Mapping[str, float]) -> Entry:
    return Entry(
        [DescribeClientQuotasResponse.EntityData(part.kind, part.name) for part in entity],
        [DescribeClientQuotasResponse.ValueData(key, limit) for key, limit in sorted(limits.items())],
    )


# ---- alter -----------------------------------------------------------------------------------------------------------


async def alter_client_quotas(
    node: KafkaNode, request: AlterClientQuotasRequest, call: Call
) -> AlterClientQuotasResponse:
    """Sets and removes quotas; each entity on its own."""
    count = sum(max(1, len(entry.ops)) for entry in request.entries)
    require_few(count, "quotas")
    wanted = await beside(count, _wanted, request.entries)
    if not wanted:
        return AlterClientQuotasResponse()
    answered = await node.change(AlterClientQuotas(wanted, request.validate_only), 0, call.rights)
    return await beside(count, _all_altered, answered.entities)


def _wanted(entries: Sequence[AlterClientQuotasRequest.EntryData]) -> tuple[AlteredQuotaEntity, ...]:
    if any(len(entry.entity) > PARTS_MAX for entry in entries):
        raise InvalidRequestError(f"an entity has at most {PARTS_MAX} parts: {USER}, {CLIENT_ID}, {ADDRESS}")
    return tuple(
        AlteredQuotaEntity(
            tuple(QuotaEntityPart(part.entity_type, part.entity_name) for part in entry.entity),
            tuple(AlteredQuota(op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in entries
    )


def _all_altered(results: Sequence[QuotaEntityResult]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_altered(one.entity, one.error, one.message or None) for one in results])


def refuse_alter_client_quotas(request: AlterClientQuotasRequest, failure: Failure) -> AlterClientQuotasResponse:
    """Returns the answer to a request that failed as a whole."""
    return AlterClientQuotasResponse(
        entries=[
            _altered(
                [QuotaEntityPart(part.entity_type, part.entity_name) for part in entry.entity],
                failure.code,
                failure.message,
            )
            for entry in request.entries
        ]
    )


def _altered(entity: Sequence[QuotaEntityPart], code: int, message: str | None) -> AlterClientQuotasResponse.EntryData:
    parts = [AlterClientQuotasResponse.EntityData(part.kind, part.name) for part in entity]
    return AlterClientQuotasResponse.EntryData(code, message, parts)
