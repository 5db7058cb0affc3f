"""Feature levels of the cluster: what is finalized, and who must support it before it can be."""

from __future__ import annotations

from collections.abc import Mapping

from replog.controller.requests import FeatureUpdate, Result, UpdateFeatures, UpdateFeaturesResponse
from replog.controller.state.broker_registry import BrokerRegistry, ControllerRegistry
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import FeatureUpdateFailedError, InvalidRequestError, UnsupportedVersionError
from replog.metadata.features import (
    METADATA_VERSION,
    METADATA_VERSION_ENDPOINTS,
    METADATA_VERSION_TRANSACTIONS,
    SUPPORTED_FEATURES,
    supported_levels,
)
from replog.metadata.records import FeatureLevelRecord, SupportedFeature
from replog_timeline import SnapshotRegistry, TimelineHashMap

FEATURES_MAX = 1_000
"""That a node may name.  Each is walked through several times on the way into a record, in one step of the controller."""


class FeatureControl:
    """Finalized levels by feature name."""

    def __init__(self, registry: SnapshotRegistry, brokers: BrokerRegistry, controllers: ControllerRegistry) -> None:
        self._brokers = brokers
        self._controllers = controllers
        self.levels: TimelineHashMap[str, int] = TimelineHashMap(registry)

    @property
    def needs_bootstrap(self) -> bool:
        """Whether the log is new: no controller has written its level yet."""
        return METADATA_VERSION not in self.levels

    @property
    def knows_endpoints(self) -> bool:
        """Whether registrations of brokers may hold endpoints."""
        return self.levels.get(METADATA_VERSION, 0) >= METADATA_VERSION_ENDPOINTS

    @property
    def knows_transactions(self) -> bool:
        """Whether a change may be a transaction of several batches of the metadata log."""
        return self.levels.get(METADATA_VERSION, 0) >= METADATA_VERSION_TRANSACTIONS

    def bootstrap_records(self) -> tuple[FeatureLevelRecord, ...]:
        """Returns the levels that a new cluster starts with: the highest of everything."""
        return tuple(FeatureLevelRecord(feature.name, feature.max_level) for feature in SUPPORTED_FEATURES)

    def check_node(self, node: str, features: tuple[SupportedFeature, ...]) -> None:
        """Checks that a node can work with every finalized level; else it may not register.

        Raises:
            InvalidRequestError: It names more than `FEATURES_MAX`.
            UnsupportedVersionError: The node cannot; the message says with which level.
        """
        if len(features) > FEATURES_MAX:
            raise InvalidRequestError(f"{node} names {len(features):,} features, {FEATURES_MAX:,} may be")
        for name, level in sorted(self.levels.items()):
            supported = supported_levels(features, name)
            if not supported.min_level <= level <= supported.max_level:
                raise UnsupportedVersionError(
                    f"the cluster has {name} at level {level}, {node} supports {supported.min_level} to "
                    f"{supported.max_level}. Upgrade that node."
                )

    def require_metadata_version(self, level: int, what: str) -> None:
        """Checks that the cluster is at `level` of the metadata version already, which `what` needs.

        Raises:
            UnsupportedVersionError: The cluster is at a lower level.
        """
        current = self.levels.get(METADATA_VERSION, 0)
        if current < level:
            raise UnsupportedVersionError(
                f"{what} need {METADATA_VERSION} {level}, the cluster is at {current}. Upgrade all nodes, then the feature."
            )

    def update(self, request: UpdateFeatures) -> Result:
        """Sets feature levels; all updates are one atomic batch.

        Raises:
            InvalidRequestError: There is no update, or one feature is named twice.
            FeatureUpdateFailedError: A node does not support a level, or it may not be lowered.
        """
        names = [update.name for update in request.updates]
        if not names or len(set(names)) < len(names):
            raise InvalidRequestError("name at least one feature, and each once")
        records = [
            FeatureLevelRecord(update.name, update.level) for update in request.updates if self._is_change(update)
        ]
        return Result(() if request.validate_only else tuple(records), UpdateFeaturesResponse())

    def _is_change(self, update: FeatureUpdate) -> bool:
        """Whether an update changes the level that is in force.

        Raises:
            FeatureUpdateFailedError: The level is negative, may not be lowered to, or is not supported by a node.
        """
        current = self.levels.get(update.name, 0)
        if update.level < 0:
            raise FeatureUpdateFailedError(f"{update.name}: levels start at 0, {update.level} is none")
        if update.level < current and update.name == METADATA_VERSION:
            raise FeatureUpdateFailedError(
                f"{METADATA_VERSION} is {current} and cannot be lowered: the log may hold records of that level"
            )
        if update.level < current and not update.allow_downgrade:
            raise FeatureUpdateFailedError(
                f"{update.name} is {current}; {update.level} would be a downgrade, which was not allowed"
            )
        if update.level:
            self._check_all(update.name, update.level)
        return update.level != current

    def _check_all(self, name: str, level: int) -> None:
        nodes: dict[str, tuple[SupportedFeature, ...]] = {"this controller": SUPPORTED_FEATURES}
        for broker in self._brokers.all():
            nodes[f"broker {broker.broker_id}"] = broker.supported_features
        for controller in self._controllers.all():
            nodes[f"controller {controller.controller_id}"] = controller.supported_features
        for node, features in nodes.items():
            supported = supported_levels(features, name)
            if not supported.min_level <= level <= supported.max_level:
                raise FeatureUpdateFailedError(
                    f"{name} {level}: {node} supports {supported.min_level} to {supported.max_level}. Upgrade it first."
                )

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict([on_record(FeatureLevelRecord, self.replay)])

    def replay(self, record: FeatureLevelRecord) -> None:
        """Puts a level in force; 0 removes the feature."""
        if record.level:
            self.levels[record.name] = record.level
        else:
            self.levels.pop(record.name, None)
