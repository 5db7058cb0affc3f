"""Delegation tokens: made, renewed and ended here, in force once replayed (Kafka's `DelegationTokenControlManager`).

Times are those of the wall clock of the active controller: a token is to hold for as long on the next one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.access.credentials import check_user_name
from replog.access.delegation_tokens import DelegationToken
from replog.access.token_key import TokenKey
from replog.controller.config import ControllerConfig
from replog.controller.requests import (
    CreateDelegationToken,
    CreateDelegationTokenResponse,
    ExpireDelegationToken,
    ExpireDelegationTokenResponse,
    RenewDelegationToken,
    RenewDelegationTokenResponse,
    Result,
)
from replog.controller.state.features import FeatureControl
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import (
    DelegationTokenDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    PolicyViolationError,
)
from replog.metadata.features import METADATA_VERSION_SECURITY
from replog.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from replog_checkpoints import uuid_to_text
from replog_timeline import SnapshotRegistry, TimelineHashMap

NAMES_BYTES_MAX = 4_096
"""Bytes of the names of one token together: every node has all tokens in memory."""

EXPIRED_PER_ROUND_MAX = 1_000
"""Tokens that one round removes; the next round follows at once."""


class ExpiredTokens(Struct, frozen=True):
    """What is removed of tokens that have expired, and whether those are all."""

    records: tuple[RemoveDelegationTokenRecord, ...]
    is_all: bool


class DelegationTokenControl:
    """Tokens by id, and ids by HMAC.

    Args:
        registry: The timeline of the controller.
        config: The key, and how long tokens hold.
        features: The levels that are in force.
    """

    def __init__(self, registry: SnapshotRegistry, config: ControllerConfig, features: FeatureControl) -> None:
        self._config = config
        self._features = features
        self.tokens: TimelineHashMap[str, DelegationToken] = TimelineHashMap(registry)
        self._ids: TimelineHashMap[bytes, str] = TimelineHashMap(registry)

    def create(self, request: CreateDelegationToken, requester: str, wall_ms: int, rng: random.Random) -> Result:
        """Makes a token for whoever asks, or for another user.

        Raises:
            DelegationTokenDisabledError, UnsupportedVersionError: The cluster has none, or knows none.
            PolicyViolationError: There are too many, in the cluster or of this requester, or its names are too long together.
            InvalidRequestError: A name is none.
        """
        key = self._key_or_raise()
        _check_names((request.owner, requester, *request.renewers))
        self._check_room(requester)
        lifetime_ms = self._config.delegation_token_max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        token = DelegationToken(
            self._new_id(rng),
            request.owner,
            requester,
            request.renewers,
            wall_ms,
            wall_ms + lifetime_ms,
            wall_ms + min(lifetime_ms, self._config.delegation_token_expiry_time_ms),
        )
        response = CreateDelegationTokenResponse(token, key.hmac_of(token.token_id))
        return Result((DelegationTokenRecord(token),), response)

    def renew(self, request: RenewDelegationToken, requester: str, wall_ms: int) -> Result:
        """Lets a token hold longer, at most as long as it may at all; also less long, if that is asked for.

        Raises:
            DelegationTokenDisabledError, UnsupportedVersionError: The cluster has none, or knows none.
            DelegationTokenNotFoundError, DelegationTokenExpiredError: There is none, or no longer.
            DelegationTokenOwnerMismatchError: It is another user's.
        """
        token = self._found(request.hmac)
        _check_holds(token, wall_ms)
        _check_renewer(token, requester)
        period_ms = self._config.delegation_token_expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        renewed = _ending(token, wall_ms + period_ms)
        return Result((DelegationTokenRecord(renewed),), RenewDelegationTokenResponse(renewed.expiry_timestamp_ms))

    def expire(self, request: ExpireDelegationToken, requester: str, wall_ms: int) -> Result:
        """Sets when a token ends, at once or later, at most as late as it may at all.

        Raises:
            DelegationTokenDisabledError, UnsupportedVersionError: The cluster has none, or knows none.
            DelegationTokenNotFoundError, DelegationTokenExpiredError: There is none, or no longer.
            DelegationTokenOwnerMismatchError: It is another user's.
        """
        token = self._found(request.hmac)
        _check_renewer(token, requester)
        if request.expiry_period_ms < 0:
            removal = RemoveDelegationTokenRecord(token.token_id)
            return Result((removal,), ExpireDelegationTokenResponse(wall_ms))
        _check_holds(token, wall_ms)
        ending = _ending(token, wall_ms + request.expiry_period_ms)
        return Result((DelegationTokenRecord(ending),), ExpireDelegationTokenResponse(ending.expiry_timestamp_ms))

    def remove_expired(self, wall_ms: int) -> ExpiredTokens:
        """Removes tokens that have expired, `EXPIRED_PER_ROUND_MAX` at most."""
        expired = [token_id for token_id, token in self.tokens.items() if token.has_expired(wall_ms)]
        records = tuple(map(RemoveDelegationTokenRecord, sorted(expired)[:EXPIRED_PER_ROUND_MAX]))
        return ExpiredTokens(records, is_all=len(records) == len(expired))

    def _key_or_raise(self) -> TokenKey:
        if self._config.token_key is None:
            raise DelegationTokenDisabledError(
                "this cluster has no delegation tokens: set delegation.token.secret.key, the same on every broker and controller"
            )
        self._features.require_metadata_version(METADATA_VERSION_SECURITY, "delegation tokens")
        return self._config.token_key

    def _found(self, token_hmac: bytes) -> DelegationToken:
        self._key_or_raise()
        token_id = self._ids.get(token_hmac)
        token = None if token_id is None else self.tokens.get(token_id)
        if token is None:
            raise DelegationTokenNotFoundError(
                "there is no delegation token with this HMAC: it has expired, or was made with another delegation.token.secret.key"
            )
        return token

    def _check_room(self, requester: str) -> None:
        config = self._config
        if len(self.tokens) >= config.max_delegation_tokens:
            raise PolicyViolationError(
                f"there are {config.max_delegation_tokens:,} delegation tokens, and no more may be: expire some"
            )
        own = sum(1 for _, token in self.tokens.items() if token.requester == requester)
        if own >= config.max_delegation_tokens_per_requester:
            raise PolicyViolationError(
                f"user {requester} has asked for {own:,} delegation tokens, and may for no more: expire some"
            )

    def _new_id(self, rng: random.Random) -> str:
        """Returns an id in Kafka's spelling that no command line takes for an option."""
        while (text := uuid_to_text(UUID(int=rng.getrandbits(128), version=4))).startswith("-") or text in self.tokens:
            pass
        return text

    # ---- replay -----------------------------------------------------------------------------------------------------

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict(
            (on_record(DelegationTokenRecord, self._replay), on_record(RemoveDelegationTokenRecord, self._remove))
        )

    def _replay(self, record: DelegationTokenRecord) -> None:
        token_id = record.token.token_id
        self.tokens[token_id] = record.token
        if self._config.token_key is not None:
            self._ids[self._config.token_key.hmac_of(token_id)] = token_id

    def _remove(self, record: RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)
        if self._config.token_key is not None:
            self._ids.pop(self._config.token_key.hmac_of(record.token_id), None)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        check_user_name(name)
    size = sum(len(name.encode()) for name in names)
    if size > NAMES_BYTES_MAX:
        raise PolicyViolationError(
            f"the names of owner, requester and renewers have {size:,} bytes, and may have {NAMES_BYTES_MAX:,}: name fewer renewers"
        )


def _ending(token: DelegationToken, expiry_ms: int) -> DelegationToken:
    return replace(token, expiry_timestamp_ms=min(token.max_timestamp_ms, expiry_ms))


def _check_holds(token: DelegationToken, wall_ms: int) -> None:
    if token.has_expired(wall_ms):
        raise DelegationTokenExpiredError(f"delegation token {token.token_id} has expired: make another one")


def _check_renewer(token: DelegationToken, user: str) -> None:
    if not token.may_be_renewed_by(user):
        raise DelegationTokenOwnerMismatchError(
            f"user {user} is neither the owner nor a renewer of delegation token {token.token_id}: one of them must ask"
        )
