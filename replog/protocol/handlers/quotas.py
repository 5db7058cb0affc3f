"""DescribeClientQuotas: there are no quotas, and kafka-configs asks for them before it shows a user (KIP-546)."""

from __future__ import annotations

from replog.protocol.handlers.node import Call, Failure, KafkaNode
from replog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


async def describe_client_quotas(
    _node: KafkaNode, _request: DescribeClientQuotasRequest, _call: Call
) -> DescribeClientQuotasResponse:
    """Returns none."""
    return DescribeClientQuotasResponse(error_message=None, entries=[])


def refuse_describe_client_quotas(
    _request: DescribeClientQuotasRequest, failure: Failure
) -> DescribeClientQuotasResponse:
    """Returns the answer to a request that failed."""
    return DescribeClientQuotasResponse(error_code=failure.code, error_message=failure.message, entries=None)
