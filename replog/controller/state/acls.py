"""The entries of access control lists: checked here, in force once replayed (Kafka's `AclControlManager`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final
from uuid import UUID

from msgspec import Struct

from replog.access.authorizer import OPEN, Authorizer
from replog.access.entries import AclEntry, AclFilter, entry_problem
from replog.access.standard import StandardAuthorizer
from replog.controller.config import ControllerConfig
from replog.controller.requests import (
    AclResult,
    CreateAcls,
    CreateAclsResponse,
    DeleteAcls,
    DeleteAclsResponse,
    LongResult,
    Result,
)
from replog.controller.state.features import FeatureControl
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import ErrorCode, InvariantViolationError, PolicyViolationError
from replog.metadata.features import METADATA_VERSION_SECURITY
from replog.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from replog_timeline import SnapshotRegistry, TimelineHashMap, TimelineLong

LOOKS_MAX = 40_000
"""How many entries one request may have looked at, filter by filter, beside those that name an entry whole; about a microsecond each."""

ARRANGED_TOGETHER: Final = 1_000
"""Entries that are arranged in one step: some milliseconds.  More take several, in which no client is judged."""

_ADDED = AclResult(ErrorCode.NONE)


class _Arranging(Struct):
    """What is to decide, and the entries that it does not know yet."""

    authorizer: StandardAuthorizer
    left: Iterator[AclEntry]


class EntriesInForce:
    """What decides by the entries of the newest state, and goes back with it.

    Changes are noted when they are replayed, and put in force when the next client is judged.  Whoever judges nobody, as a
    standby does, notes nothing.  Where thousands are to be put in force, all are arranged anew, some in each step.

    Args:
        registry: The timeline of the controller.
        new_authorizer: The function that makes what decides, with no entry; None: everybody may do everything.
        entries: All entries of the newest state.
    """

    def __init__(
        self,
        registry: SnapshotRegistry,
        new_authorizer: Callable[[], StandardAuthorizer] | None,
        entries: Collection[AclEntry],
    ) -> None:
        self._new_authorizer = new_authorizer
        self._entries = entries
        self._registry = registry
        self._stamp = TimelineLong(registry)  # another one behind each snapshot; goes back with the state
        self._stamped_in: object = None  # the newest one when it was set; None: it is set at the next change
        self._last_stamp = 0
        self._authorizer: StandardAuthorizer | None = None
        self._known_stamp = 0  # of the state that the authorizer has, together with what is noted
        self._noted: dict[AclEntry, bool] = {}  # whether it is new, or gone
        self._arranging: _Arranging | None = None  # of that state

    @property
    def is_far_behind(self) -> bool:
        """Whether so much is to be arranged that it takes several calls of `arrange_more`, and `authorizer` would hold all up."""
        if self._new_authorizer is None or len(self._entries) <= ARRANGED_TOGETHER:
            return False
        return self._authorizer is None or self._stamp.get() != self._known_stamp

    def note(self, entry: AclEntry, *, is_new: bool) -> None:
        """Notes that an entry has been replayed."""
        if self._stamp.get() != self._known_stamp:
            self._authorizer = self._stamped_in = None
        if self._stamped_in is None or self._stamped_in is not self._registry.latest_snapshot:
            self._stamp_anew()
        self._arranging = None
        if self._authorizer is not None and self._noted.pop(entry, is_new) is is_new:
            self._noted[entry] = is_new
            if len(self._noted) > ARRANGED_TOGETHER:
                self._authorizer = None
                self._noted.clear()

    def _stamp_anew(self) -> None:
        """Marks the state behind the newest snapshot: once for all changes until the next one, which are taken back together."""
        self._stamped_in = self._registry.latest_snapshot
        self._last_stamp += 1
        self._stamp.set(self._last_stamp)
        self._known_stamp = self._last_stamp

    def arrange_more(self) -> None:
        """Arranges some more entries; they are in force when all are, and nothing is lost where the state changes before."""
        if self._new_authorizer is None:
            return
        if self._arranging is None or self._stamp.get() != self._known_stamp:
            self._arranging = _Arranging(self._new_authorizer(), iter(list(self._entries)))
            self._authorizer = self._stamped_in = None
            self._known_stamp = self._stamp.get()
            self._noted.clear()
        some = list(islice(self._arranging.left, ARRANGED_TOGETHER))
        self._arranging.authorizer.update((), some)
        if len(some) < ARRANGED_TOGETHER:
            self._authorizer, self._arranging = self._arranging.authorizer, None

    def authorizer(self) -> Authorizer:
        """Returns what decides by the newest state; costs what has changed since the last call, or all where it `is_far_behind`."""
        if self._new_authorizer is None:
            return OPEN
        while self._authorizer is None or self._stamp.get() != self._known_stamp:
            self.arrange_more()
        if self._noted:
            new = [entry for entry, is_new in self._noted.items() if is_new]
            self._authorizer.update([entry for entry, is_new in self._noted.items() if not is_new], new)
            self._noted.clear()
        return self._authorizer


class AclControl:
    """Entries by id, and ids by entry: no entry is there twice; changed by `replay_*` only."""

    def __init__(self, registry: SnapshotRegistry, config: ControllerConfig, features: FeatureControl) -> None:
        self._config = config
        self._features = features
        self.entries: TimelineHashMap[UUID, AclEntry] = TimelineHashMap(registry)
        self._ids: TimelineHashMap[AclEntry, UUID] = TimelineHashMap(registry)
        self.in_force = EntriesInForce(registry, config.new_authorizer, self._ids)
        """What decides by the newest state."""

    def create(self, request: CreateAcls, rng: random.Random) -> LongResult:
        """Adds entries; one result for each, in order.  One that is there already is a success, as in Kafka.

        Raises:
            UnsupportedVersionError: The cluster is not at the feature level that knows access control lists.
        """
        self._features.require_metadata_version(METADATA_VERSION_SECURITY, "access control lists")
        results: list[AclResult] = []
        made = self._made(request.entries, rng, results)
        return LongResult(made, lambda _end_offset: CreateAclsResponse(tuple(results)))

    def _made(
        self, entries: Iterable[AclEntry], rng: random.Random, results: list[AclResult]
    ) -> Iterator[AccessControlEntryRecord | None]:
        """Yields a record for each entry that is new, None for any other one; adds its result."""
        made: set[AclEntry] = set()
        left = self._config.max_acls - len(self.entries)
        for entry in entries:
            record, result = None, _ADDED
            if problem := entry_problem(entry):
                result = AclResult(ErrorCode.INVALID_REQUEST, problem)
            elif entry not in self._ids and entry not in made:
                if len(made) < left:
                    record = AccessControlEntryRecord(UUID(int=rng.getrandbits(128), version=4), entry)
                    made.add(entry)
                else:
                    count = f"{self._config.max_acls:,}"
                    problem = f"there are {count} entries, and no more may be; replace some by a prefix or `*`"
                    result = AclResult(ErrorCode.POLICY_VIOLATION, problem)
            results.append(result)
            yield record

    def delete(self, request: DeleteAcls) -> Result | LongResult:
        """Removes all entries that a filter fits: all of it or nothing; one result for each filter, in order.

        Raises:
            PolicyViolationError: More would have to be looked at, or would go, than one request may; nothing is removed.
        """
        looks = sum(1 for each in request.filters if each.only_entry() is None) * len(self.entries)
        if looks > LOOKS_MAX and len(request.filters) > 1:
            raise PolicyViolationError(
                f"{len(request.filters):,} filters over {len(self.entries):,} entries are more than one request may have "
                "looked at; name each entry whole, or ask in several requests"
            )
        found = [self._fitting(each) for each in request.filters]
        gone = {acl_id: None for each in found for acl_id in each}
        if len(gone) > self._config.max_records_per_request:
            raise PolicyViolationError(
                f"{len(gone):,} entries would go, at most {self._config.max_records_per_request:,} may in one request; "
                "narrow the filters"
            )
        removed = map(RemoveAccessControlEntryRecord, gone)
        response = DeleteAclsResponse(tuple(AclResult(ErrorCode.NONE, entries=tuple(each.values())) for each in found))
        if len(gone) >= self._config.max_records_per_step:
            return LongResult(removed, lambda _end_offset: response)
        return Result(tuple(removed), response)

    def _fitting(self, meant: AclFilter) -> dict[UUID, AclEntry]:
        entry = meant.only_entry()
        if entry is None:
            return {acl_id: each for acl_id, each in self.entries.items() if meant.fits(each)}
        acl_id = self._ids.get(entry)
        return {} if acl_id is None else {acl_id: entry}

    # ---- replay -----------------------------------------------------------------------------------------------------

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict(
            (
                on_record(AccessControlEntryRecord, self.replay_entry),
                on_record(RemoveAccessControlEntryRecord, self.replay_remove),
            )
        )

    def replay_entry(self, record: AccessControlEntryRecord) -> None:
        """Adds an entry."""
        self.entries[record.acl_id] = record.entry
        self._ids[record.entry] = record.acl_id
        self.in_force.note(record.entry, is_new=True)

    def replay_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        """Removes an entry.

        Raises:
            InvariantViolationError: There is none of this id.
        """
        entry = self.entries.get(record.acl_id)
        if entry is None:
            raise InvariantViolationError(f"there is no entry {record.acl_id} of an access control list to remove")
        del self.entries[record.acl_id]
        del self._ids[entry]
        self.in_force.note(entry, is_new=False)
