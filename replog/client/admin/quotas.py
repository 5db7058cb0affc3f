"""What an operator asks and says of quotas of clients (KIP-546).  A base class of `Admin`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from replog.client.arguments import limit_ms, require_mapping, require_text
from replog.client.cluster.view import ClusterView
from replog.controller.requests import AlterClientQuotas, AlteredQuota, AlteredQuotaEntity
from replog.errors import ErrorCode, InvalidRequestError
from replog.errors.from_code import error_from_code
from replog.metadata.records import QuotaEntityPart

if TYPE_CHECKING:
    from replog.client.protocol.questions.quotas import EntityQuotas


class QuotaOperations:
    """Needs what `Admin` has: a view of the cluster, and a time-out for methods that are given none."""

    _view: ClusterView
    _timeout_ms: int

    async def describe_quotas(self, *, timeout_ms: int | None = None) -> tuple[EntityQuotas, ...]:
        """Returns the quotas of all entities that have some.

        Args:
            timeout_ms: The limit of the whole call, in milliseconds.
        """
        from replog.client.protocol.questions.quotas import DescribeQuotas  # loaded with the first question of its kind

        within_ms = limit_ms(timeout_ms, self._timeout_ms)
        return await self._view.call_any(DescribeQuotas(), timeout_ms=within_ms, what="describe quotas")

    async def alter_quotas(
        self,
        entity: Mapping[str, str | None],
        limits: Mapping[str, float | None],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets quotas of an entity, each in force on every broker for itself, that of changed partitions at the controller; others stay.

        Args:
            entity: What they are of: names by the kinds `user`, `client-id`, or both, or by `ip`; None as a name: the default of all
                that have none of their own.
            limits: How much a second, by Kafka's names; None removes a quota.  Users and client ids have `producer_byte_rate` and
                `consumer_byte_rate` in bytes, `request_percentage` in percent of the time of a thread, and
                `controller_mutation_rate` in partitions that are created and deleted; an address has `connection_creation_rate`.
            validate_only: Whether the controller only judges the request, and changes nothing.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            InvalidRequestError: There is no such entity or quota, or a limit is not above 0, or too large.
            UnsupportedVersionError: The cluster is at a metadata version without quotas.
        """
        request = AlterClientQuotas((AlteredQuotaEntity(_parts(entity), _altered(limits)),), validate_only)
        within_ms = limit_ms(timeout_ms, self._timeout_ms)
        answer = await self._view.call_any(request, timeout_ms=within_ms, what="alter quotas")
        for result in answer.entities:
            if result.error is not ErrorCode.NONE:
                raise error_from_code(result.error, result.message)


def _parts(entity: Mapping[str, str | None]) -> tuple[QuotaEntityPart, ...]:
    require_mapping("entity", entity, "a mapping of kinds to names")
    for kind, name in entity.items():
        require_text("a kind of entity", kind)
        if name is not None:
            require_text(f"the name of {kind}", name)
    return tuple(QuotaEntityPart(kind, name) for kind, name in entity.items())


def _altered(limits: Mapping[str, float | None]) -> tuple[AlteredQuota, ...]:
    require_mapping("limits", limits, "a mapping of quotas to numbers")
    for key, limit in limits.items():
        require_text("the name of a quota", key)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
            raise InvalidRequestError(f"{key} is {limit!r}, and has to be a number, or None to remove it")
    return tuple(AlteredQuota(key, None if limit is None else float(limit)) for key, limit in limits.items())
