"""Delegation tokens: made, renewed, ended, described (KIP-48, KIP-373).  A base class of `Admin`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from replog.access.secret import Secret
from replog.client.arguments import limit_ms, require_text, texts_of
from replog.client.cluster.view import ClusterView
from replog.errors import ConfigError
from replog.errors.choices import require_at_least

if TYPE_CHECKING:
    from replog.client.protocol.questions.delegation_tokens import HeldToken

_PERIOD_MS_MAX: Final = 2**63 - 1


class DelegationTokenOperations:
    """Needs what `Admin` has: a view of the cluster, and a time-out for methods that are given none.

    All of it is for clients that log in, or show a certificate, and not with a delegation token.
    """

    _view: ClusterView
    _timeout_ms: int

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> HeldToken:
        """Makes a token, with which somebody else logs in as its owner: `Security.delegation_token`.

        Brokers hear of it a moment later.  An attempt whose answer is lost leaves a token that nobody has, until it expires.

        Args:
            owner: The name of the user whom it logs in; None: this client's own.  Another one takes CREATE_TOKENS on that user.
            renewers: The names of users who may renew and end it, besides the owner.
            max_lifetime_ms: How long it may be renewed, in milliseconds; None: as long as the cluster lets it be.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            ConfigError: The lifetime is none.
            DelegationTokenDisabledError: The cluster has no tokens.
            DelegationTokenRequestNotAllowedError: This client is unknown, comes in plain text, or has logged in with a token.
            DelegationTokenAuthorizationError: This client may not make tokens for the owner.
            PolicyViolationError: There are too many.
        """
        from replog.client.protocol.questions.delegation_tokens import MakeToken

        if owner is not None:
            require_text("owner", owner)
        names = tuple(texts_of("renewers", renewers))
        lifetime_ms = _period("max_lifetime_ms", max_lifetime_ms, 1)
        within_ms = limit_ms(timeout_ms, self._timeout_ms)
        question = MakeToken(owner, names, lifetime_ms)
        return await self._view.call_any(question, timeout_ms=within_ms, what="make a delegation token")

    async def renew_delegation_token(
        self, hmac: Secret | str, *, period_ms: int | None = None, timeout_ms: int | None = None
    ) -> int:
        """Lets a token hold longer, at most as long as it may at all; returns when it ends, in milliseconds since 1970.

        Args:
            hmac: The HMAC of the token as base64.
            period_ms: How long it holds from now on, in milliseconds; None, and at most: `delegation.token.expiry.time.ms`.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            ConfigError: The period is none, or the HMAC is no base64.
            DelegationTokenNotFoundError, DelegationTokenExpiredError: There is none, or no longer.
            DelegationTokenOwnerMismatchError: It is another user's.
        """
        return await self._set_expiry(hmac, _period("period_ms", period_ms, 1), timeout_ms, renews=True)

    async def expire_delegation_token(
        self, hmac: Secret | str, *, period_ms: int | None = None, timeout_ms: int | None = None
    ) -> int:
        """Sets when a token ends, and returns that, in milliseconds since 1970.

        Who is logged in with it stays so until the login is renewed: at the end that the token had when the login began, or before
        (`connections.max.reauth.ms`).

        Args:
            hmac: The HMAC of the token as base64.
            period_ms: How long it still holds, in milliseconds; None: it ends at once.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            ConfigError: The period is none, or the HMAC is no base64.
            DelegationTokenNotFoundError, DelegationTokenExpiredError: There is none, or no longer.
            DelegationTokenOwnerMismatchError: It is another user's.
        """
        return await self._set_expiry(hmac, _period("period_ms", period_ms, 0), timeout_ms, renews=False)

    async def describe_delegation_tokens(
        self, users: Sequence[str] | None = None, *, timeout_ms: int | None = None
    ) -> tuple[HeldToken, ...]:
        """Returns the tokens that this client may know, those that end first in front: its own, those that it may renew, and those it may DESCRIBE.

        Args:
            users: The names of users: of these owners and renewers alone; None: of all.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            DelegationTokenDisabledError: The cluster has no tokens.
            DelegationTokenRequestNotAllowedError: This client is unknown, comes in plain text, or has logged in with a token.
        """
        from replog.client.protocol.questions.delegation_tokens import DescribeTokens

        names = None if users is None else tuple(texts_of("users", users))
        within_ms = limit_ms(timeout_ms, self._timeout_ms)
        question = DescribeTokens(names)
        return (await self._view.call_any(question, timeout_ms=within_ms, what="describe delegation tokens")).tokens

    async def _set_expiry(self, hmac: Secret | str, period_ms: int, timeout_ms: int | None, *, renews: bool) -> int:
        from replog.client.protocol.questions.delegation_tokens import SetTokenExpiry

        question = SetTokenExpiry(_secret_hmac(hmac), period_ms, renews)
        within_ms = limit_ms(timeout_ms, self._timeout_ms)
        what = "renew a delegation token" if renews else "end a delegation token"
        return (await self._view.call_any(question, timeout_ms=within_ms, what=what)).expiry_timestamp_ms


def _period(name: str, value: int | None, lowest: int) -> int:
    """Returns a period in milliseconds; -1, which leaves it to the cluster, for None."""
    if value is None:
        return -1
    require_at_least(name, value, lowest, _PERIOD_MS_MAX)
    return value


def _secret_hmac(hmac: Secret | str) -> Secret:
    if not isinstance(hmac, Secret):
        require_text("hmac", hmac)
        hmac = Secret(hmac)
    try:
        base64.b64decode(hmac.reveal(), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(
            "hmac", None, "hmac is no base64; it must be the HMAC of a delegation token as it was told"
        ) from None
    return hmac
