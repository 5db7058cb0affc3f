"""Delegation tokens are made, renewed, ended and described (KIP-48, KIP-373)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from replog.access.delegation_tokens import DelegationToken
from replog.access.secret import Secret
from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import require_answer
from replog.errors import ErrorCode
from replog.waiting.asks import Asks
from replog.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from replog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from replog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from replog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_USER: Final = "User"
_TEXTS: Final[Mapping[int, str]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the cluster has no delegation tokens: delegation.token.secret.key is not set",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token (any more)",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only the owner and the renewers of a delegation token renew and end it",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "delegation tokens are for clients that log in, or show a certificate, and not with a "
    "delegation token: use such a listener",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "the user may not make delegation tokens for this owner: it lacks CREATE_TOKENS on user User:OWNER",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired: make another one",
    ErrorCode.POLICY_VIOLATION: "there are as many delegation tokens as may be, of this user or in all, or too many renewers",
}


class HeldToken(Struct, frozen=True):
    """A delegation token, and what one logs in with.

    Attributes:
        token: Whose it is, and how long it holds.
        hmac: Its HMAC as base64, which is the password of the login; whoever has it is the owner.
    """

    token: DelegationToken
    hmac: Secret


class MakeToken(Asks["HeldToken"], frozen=True):
    """Asks for a token.

    Attributes:
        owner: The user whom it logs in; None: whoever asks.
        renewers: The users who may renew and end it, besides the owner.
        max_lifetime_ms: How long it may be renewed, in milliseconds; -1: as long as the cluster lets it be.
    """

    owner: str | None
    renewers: tuple[str, ...]
    max_lifetime_ms: int


class SetTokenExpiry(Asks["TokenExpirySet"], frozen=True):
    """Renews a token, or ends it.

    Attributes:
        hmac: The HMAC as base64.
        period_ms: How long it holds from now on, in milliseconds; of a renewal -1: the cluster's time; of an end -1: no longer.
        renews: Whether it is renewed, or ended.
    """

    hmac: Secret
    period_ms: int
    renews: bool


class TokenExpirySet(Struct, frozen=True):
    """When the token ends, in milliseconds since 1970."""

    expiry_timestamp_ms: int


class DescribeTokens(Asks["TokensDescribed"], frozen=True):
    """Asks for the tokens that whoever asks may know; `users`: of these owners and renewers; None: of all."""

    users: tuple[str, ...] | None = None


class TokensDescribed(Struct, frozen=True):
    tokens: tuple[HeldToken, ...]


async def make_token(broker: Broker, question: MakeToken, timeout_ms: int) -> HeldToken:
    """Makes a token; raises as `replog.client.admin.access` says."""
    renewers = [CreateDelegationTokenRequest.CreatableRenewers(_USER, each) for each in question.renewers]
    owner_type = None if question.owner is None else _USER
    request = CreateDelegationTokenRequest(owner_type, question.owner, renewers, question.max_lifetime_ms)
    answer = await broker.ask(request, CreateDelegationTokenResponse, timeout_ms=timeout_ms)
    _require(broker, answer.error_code, "a new delegation token")
    token = DelegationToken(
        answer.token_id,
        answer.principal_name,
        answer.token_requester_principal_name or answer.principal_name,
        question.renewers,
        answer.issue_timestamp_ms,
        answer.max_timestamp_ms,
        answer.expiry_timestamp_ms,
    )
    return HeldToken(token, _as_secret(answer.hmac))


async def set_token_expiry(broker: Broker, question: SetTokenExpiry, timeout_ms: int) -> TokenExpirySet:
    """Renews a token, or ends it."""
    token_hmac = base64.b64decode(question.hmac.reveal())
    answer: RenewDelegationTokenResponse | ExpireDelegationTokenResponse
    if question.renews:
        renewal = RenewDelegationTokenRequest(token_hmac, question.period_ms)
        answer = await broker.ask(renewal, RenewDelegationTokenResponse, timeout_ms=timeout_ms)
    else:
        end = ExpireDelegationTokenRequest(token_hmac, question.period_ms)
        answer = await broker.ask(end, ExpireDelegationTokenResponse, timeout_ms=timeout_ms)
    _require(
        broker,
        answer.error_code,
        "the renewal of a delegation token" if question.renews else "the end of a delegation token",
    )
    return TokenExpirySet(answer.expiry_timestamp_ms)


async def describe_tokens(broker: Broker, question: DescribeTokens, timeout_ms: int) -> TokensDescribed:
    """Returns the tokens by the time of their end."""
    users, owner = question.users, DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    request = DescribeDelegationTokenRequest(None if users is None else [owner(_USER, each) for each in users])
    answer = await broker.ask(request, DescribeDelegationTokenResponse, timeout_ms=timeout_ms)
    _require(broker, answer.error_code, "to describe delegation tokens")
    found = [
        HeldToken(
            DelegationToken(
                one.token_id,
                one.principal_name,
                one.token_requester_principal_name or one.principal_name,
                tuple(each.principal_name for each in one.renewers),
                one.issue_timestamp,
                one.max_timestamp,
                one.expiry_timestamp,
            ),
            _as_secret(one.hmac),
        )
        for one in answer.tokens
    ]
    return TokensDescribed(tuple(sorted(found, key=lambda one: (one.token.expiry_timestamp_ms, one.token.token_id))))


def _require(broker: Broker, number: int, what: str) -> None:
    meaning = _TEXTS.get(number)
    require_answer(broker, number, meaning and f"{broker.address} refuses {what}: {meaning}", what)


def _as_secret(token_hmac: bytes) -> Secret:
    return Secret(base64.b64encode(token_hmac).decode())


QUESTIONS: Final[Mapping[type[Any], Question]] = {
    MakeToken: make_token,
    SetTokenExpiry: set_token_expiry,
    DescribeTokens: describe_tokens,
}
"""By the class of the question."""
