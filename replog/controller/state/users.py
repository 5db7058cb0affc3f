"""What the cluster keeps of the passwords of its users (KIP-554): validated here, in force once replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from replog.access.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    ScramCredential,
    ScramMechanism,
    check_user_name,
)
from replog.controller.requests import (
    AlterableScramCredential,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResponse,
    Result,
    UserResult,
)
from replog.controller.state.features import FeatureControl
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import (
    DuplicateResourceError,
    ErrorCode,
    InvalidRequestError,
    PolicyViolationError,
    ReplogError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
)
from replog.metadata.features import METADATA_VERSION_SECURITY
from replog.metadata.image import ScramUser
from replog.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from replog_timeline import SnapshotRegistry, TimelineHashMap

CREDENTIALS_PER_REQUEST_MAX = 1_000
"""Credentials that one request may name: all of them are one step of the controller."""

CREDENTIALS_MAX = 100_000
"""Credentials in the cluster: every node has all of them in memory."""


class UserControl:
    """Credentials by user and mechanism.

    Args:
        registry: The timeline of the controller.
        features: The levels that are in force.
    """

    def __init__(self, registry: SnapshotRegistry, features: FeatureControl) -> None:
        self._features = features
        self.credentials: TimelineHashMap[ScramUser, ScramCredential] = TimelineHashMap(registry)

    def alter(self, request: AlterUserScramCredentials) -> Result:
        """Gives users credentials, and takes them away: one result for each user, who gets all that was asked for or nothing.

        Raises:
            PolicyViolationError: It names more than `CREDENTIALS_PER_REQUEST_MAX`.
            UnsupportedVersionError: The cluster is at a level that knows no users.
        """
        self._features.require_metadata_version(METADATA_VERSION_SECURITY, "users")
        if len(request.credentials) > CREDENTIALS_PER_REQUEST_MAX:
            raise PolicyViolationError(
                f"one request names {CREDENTIALS_PER_REQUEST_MAX:,} credentials at most; ask in several"
            )
        times = Counter((each.name, each.mechanism) for each in request.credentials)
        by_user: dict[str, list[AlterableScramCredential]] = {}
        for each in request.credentials:
            by_user.setdefault(each.name, []).append(each)
        records: list[UserScramCredentialRecord | RemoveUserScramCredentialRecord] = []
        results: list[UserResult] = []
        for name, wishes in by_user.items():
            try:
                if any(times[name, each.mechanism] > 1 for each in wishes):
                    raise DuplicateResourceError(f'user "{name}" is named twice for one mechanism; ask in two requests')
                made = [self._record(each) for each in wishes]
                added = sum(each.credential is not None for each in wishes)
                if len(self.credentials) + len(records) + added > CREDENTIALS_MAX:
                    raise PolicyViolationError(f"there are {CREDENTIALS_MAX:,} credentials at most; remove some users")
            except ReplogError as error:
                results.append(UserResult(name, error.code, str(error)))
            else:
                records += made
                results.append(UserResult(name, ErrorCode.NONE))
        return Result(tuple(records), AlterUserScramCredentialsResponse(tuple(results)))

    def _record(self, wish: AlterableScramCredential) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
        """Makes the record of one wish.

        Raises:
            UnacceptableCredentialError, ResourceNotFoundError: It is refused.
        """
        name, mechanism, kept = wish.name, wish.mechanism, wish.credential
        try:
            check_user_name(name)
        except InvalidRequestError as error:
            raise UnacceptableCredentialError(str(error)) from None
        if kept is None:
            if (name, mechanism) not in self.credentials:
                raise ResourceNotFoundError(f'user "{name}" has no credential for {mechanism.sasl_name}')
            return RemoveUserScramCredentialRecord(name, mechanism)
        _check_credential(mechanism, kept)
        return UserScramCredentialRecord(name, mechanism, kept.salt, kept.stored_key, kept.server_key, kept.iterations)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict(
            (
                on_record(UserScramCredentialRecord, self._replay),
                on_record(RemoveUserScramCredentialRecord, self._remove),
            )
        )

    def _replay(self, record: UserScramCredentialRecord) -> None:
        self.credentials[record.name, record.mechanism] = record.credential

    def _remove(self, record: RemoveUserScramCredentialRecord) -> None:
        self.credentials.pop((record.name, record.mechanism), None)


def _check_credential(mechanism: ScramMechanism, kept: ScramCredential) -> None:
    if kept.iterations < ITERATIONS_MIN:
        raise UnacceptableCredentialError(f"{kept.iterations:,} iterations are too few: {ITERATIONS_MIN:,} at least")
    if kept.iterations > ITERATIONS_MAX:
        raise UnacceptableCredentialError(f"{kept.iterations:,} iterations are too many: {ITERATIONS_MAX:,} at most")
    if not 0 < len(kept.salt) <= SALT_BYTES_MAX:
        raise UnacceptableCredentialError(f"a salt has 1 to {SALT_BYTES_MAX:,} bytes, not {len(kept.salt):,}")
    if len(kept.stored_key) != mechanism.key_bytes or len(kept.server_key) != mechanism.key_bytes:
        raise UnacceptableCredentialError(f"the keys of {mechanism.sasl_name} have {mechanism.key_bytes} bytes")
