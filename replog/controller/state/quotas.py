"""Quotas of clients: validated here, in force on each broker once replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replog.controller.requests import (
    AlterClientQuotas,
    AlterClientQuotasResponse,
    AlteredQuotaEntity,
    QuotaEntityResult,
    Result,
)
from replog.controller.state.features import FeatureControl
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import ErrorCode, InvalidRequestError, PolicyViolationError, ReplogError
from replog.metadata.features import METADATA_VERSION_SECURITY
from replog.metadata.quotas import QuotaEntity, check_quota, quota_entity
from replog.metadata.records import ClientQuotaRecord
from replog_timeline import SnapshotRegistry, TimelineHashMap

ENTITIES_MAX = 100_000
"""How many entities have quotas; each is in the memory of every node."""

_NO_QUOTAS: Mapping[str, float] = {}


class QuotaControl:
    """Quotas by entity, one immutable mapping each.

    Args:
        registry: The timeline of the controller.
        features: The levels of the features of the cluster.
    """

    def __init__(self, registry: SnapshotRegistry, features: FeatureControl) -> None:
        self._features = features
        self.quotas: TimelineHashMap[QuotaEntity, Mapping[str, float]] = TimelineHashMap(registry)

    def alter(self, request: AlterClientQuotas) -> Result:
        """Sets and removes quotas; an entity that is refused keeps what it has, and the others do not mind (KIP-546).

        Raises:
            UnsupportedVersionError: The cluster has a metadata version without quotas.
        """
        self._features.require_metadata_version(METADATA_VERSION_SECURITY, "quotas of clients")
        records: list[ClientQuotaRecord] = []
        results: list[QuotaEntityResult] = []
        seen: set[QuotaEntity] = set()
        for altered in request.entities:
            error, message = ErrorCode.NONE, ""
            try:
                records += self._changes(altered, seen)
            except ReplogError as refusal:
                error, message = refusal.code, str(refusal)
            results.append(QuotaEntityResult(altered.entity, error, message))
        made = () if request.validate_only else tuple(records)
        return Result(made, AlterClientQuotasResponse(tuple(results)))

    def _changes(self, altered: AlteredQuotaEntity, seen: set[QuotaEntity]) -> list[ClientQuotaRecord]:
        entity = quota_entity(*altered.entity)
        if entity in seen:
            raise InvalidRequestError("the entity is named twice")
        if entity not in self.quotas and len(self.quotas) + len(seen) >= ENTITIES_MAX:
            raise PolicyViolationError(f"at most {ENTITIES_MAX:,} entities have quotas; remove some")
        keys = [each.key for each in altered.quotas]
        if len(set(keys)) < len(keys):
            raise InvalidRequestError("a quota is named twice")
        records = list(self._records(entity, altered))
        seen.add(entity)
        return records

    def _records(self, entity: QuotaEntity, altered: AlteredQuotaEntity) -> Iterator[ClientQuotaRecord]:
        stored = self.quotas.get(entity, _NO_QUOTAS)
        for each in altered.quotas:
            if each.value is not None:
                check_quota(entity, each.key, each.value)
            if stored.get(each.key) != each.value:
                yield ClientQuotaRecord(entity, each.key, each.value)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict([on_record(ClientQuotaRecord, self.replay)])

    def replay(self, record: ClientQuotaRecord) -> None:
        """Puts a quota in force, or removes it."""
        values = dict(self.quotas.get(record.entity, _NO_QUOTAS))
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self.quotas[record.entity] = values
        else:
            self.quotas.pop(record.entity, None)
