"""Quotas of clients are described and altered: DescribeClientQuotas, AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import raise_if_refused, raise_if_unanswered, told
from replog.controller.requests import AlterClientQuotas, QuotaEntityResult
from replog.controller.requests import AlterClientQuotasResponse as QuotasAltered
from replog.metadata.records import QuotaEntityPart
from replog.waiting.asks import Asks
from replog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from replog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


class EntityQuotas(Struct, frozen=True):
    """The quotas of an entity.

    Attributes:
        entity: What they are of: names by the kinds `user`, `client-id` and `ip`; None: the default of all that have none of their own.
        limits: How much a second, by `producer_byte_rate` and the other names of Kafka's.
    """

    entity: Mapping[str, str | None]
    limits: Mapping[str, float]


class DescribeQuotas(Asks["tuple[EntityQuotas, ...]"], frozen=True):
    """Asks for the quotas of all entities."""


async def describe_quotas(broker: Broker, _question: DescribeQuotas, timeout_ms: int) -> tuple[EntityQuotas, ...]:
    """Asks for the quotas of all entities, in the order of the answer."""
    answer = await broker.ask(DescribeClientQuotasRequest(), DescribeClientQuotasResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, answer.error_message)
    return tuple(
        EntityQuotas(
            {part.entity_type: part.entity_name for part in each.entity}, {one.key: one.value for one in each.values}
        )
        for each in answer.entries or ()
    )


async def alter_quotas(broker: Broker, question: AlterClientQuotas, timeout_ms: int) -> QuotasAltered:
    """Sets and removes quotas, or judges only whether they could be; raises where nobody has answered for any entity."""
    message = AlterClientQuotasRequest
    entries = [
        message.EntryData(
            [message.EntityData(part.kind, part.name) for part in each.entity],
            [message.OpData(one.key, one.value or 0.0, one.value is None) for one in each.quotas],
        )
        for each in question.entities
    ]
    request = AlterClientQuotasRequest(entries, question.validate_only)
    answer = await broker.ask(request, AlterClientQuotasResponse, timeout_ms=timeout_ms)
    results = tuple(
        QuotaEntityResult(
            tuple(QuotaEntityPart(part.entity_type, part.entity_name) for part in each.entity),
            *told(each.error_code, each.error_message),
        )
        for each in answer.entries
    )
    raise_if_unanswered(results)
    return QuotasAltered(results)


QUESTIONS: Final[Mapping[type[Any], Question]] = {DescribeQuotas: describe_quotas, AlterClientQuotas: alter_quotas}
"""By the class of the question."""
