"""Delegation tokens: CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (KIP-48, KIP-373).

Tokens are for who has shown an identity by something else than a token, over a connection that nobody can have made in its name: whoever has a token
could keep itself tokens for ever.  Times are -1 in an answer where this node or the lists refuse, and 0 where the controller has another reason, as in Kafka.
"""

from __future__ import annotations

import asyncio
from typing import Final

from replog.access.delegation_tokens import DelegationToken
from replog.access.entries import AclOperation, ResourceKind
from replog.access.principal import ANONYMOUS
from replog.access.rights import Rights
from replog.access.token_key import TokenKey
from replog.controller.requests import CreateDelegationToken, ExpireDelegationToken, RenewDelegationToken
from replog.errors import (
    DelegationTokenAuthorizationError,
    DelegationTokenDisabledError,
    DelegationTokenRequestNotAllowedError,
    InvalidPrincipalTypeError,
    ReplogError,
    RetriableError,
)
from replog.metadata.records import SecurityProtocol
from replog.protocol.handlers.node import STEP, Call, Failure, KafkaNode, require_few
from replog.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from replog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from replog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from replog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer

USER_TYPE: Final = "User"
"""The one type of principals, as Kafka names it."""

NO_TIME: Final = -1
"""The times of a token that there is not."""


def _require_allowed(node: KafkaNode, call: Call) -> None:
    """Refuses whoever may not ask for tokens over its connection.

    Raises:
        DelegationTokenRequestNotAllowedError: It is in plain text, shows no identity, or has logged in with a token.
    """
    principal, protocol = call.caller.principal, node.protocol_of(call.listener)
    is_unknown = protocol is SecurityProtocol.PLAINTEXT or (
        protocol is SecurityProtocol.SSL and principal.name == ANONYMOUS.name
    )
    if principal.token_authenticated or is_unknown:
        raise DelegationTokenRequestNotAllowedError(
            "delegation tokens are for who logs in by a password, a bearer token or a certificate, and not with a delegation token"
        )


# ---- CreateDelegationToken -------------------------------------------------------------------------------------------


async def create_delegation_token(
    node: KafkaNode, request: CreateDelegationTokenRequest, call: Call
) -> CreateDelegationTokenResponse:
    """Makes a token for whoever asks, or for another user in whose name it may."""
    requester = call.caller.principal.name
    owner_type, owner = USER_TYPE, requester
    if request.owner_principal_name:
        owner_type, owner = request.owner_principal_type or "", request.owner_principal_name

    def refused(error: ReplogError, time_ms: int) -> CreateDelegationTokenResponse:
        return CreateDelegationTokenResponse(
            error.code, owner_type, owner, USER_TYPE, requester, time_ms, time_ms, time_ms
        )

    try:
        _require_allowed(node, call)
        _require_owner(call.rights, owner_type, owner, requester)
        renewers = tuple(each.principal_name for each in request.renewers)
        if any(each.principal_type != USER_TYPE for each in request.renewers):
            raise InvalidPrincipalTypeError(f"a renewer is of another type than {USER_TYPE}")
        require_few(len(renewers), "renewers")
    except ReplogError as error:
        return refused(error, NO_TIME)
    wish = CreateDelegationToken(owner, renewers, request.max_lifetime_ms)
    try:
        made = await node.change(wish, node.request_timeout_ms, call.rights)
    except RetriableError:
        raise
    except DelegationTokenAuthorizationError as error:
        return refused(error, NO_TIME)
    except ReplogError as error:
        return refused(error, 0)
    token = made.token
    return CreateDelegationTokenResponse(
        0,
        USER_TYPE,
        token.owner,
        USER_TYPE,
        token.requester,
        token.issue_timestamp_ms,
        token.expiry_timestamp_ms,
        token.max_timestamp_ms,
        token.token_id,
        made.hmac,
    )


def _require_owner(rights: Rights, owner_type: str, owner: str, requester: str) -> None:
    """Checks that a token may be made for an owner.

    Raises:
        DelegationTokenAuthorizationError: It is another user, in whose name the client may not ask.
        InvalidPrincipalTypeError: It is of another type than a user: a login with the token would be that of a user of this name.
    """
    if (owner_type, owner) != (USER_TYPE, requester):
        rights.require(AclOperation.CREATE_TOKENS, ResourceKind.USER, f"{owner_type}:{owner}")
    if owner_type != USER_TYPE:
        raise InvalidPrincipalTypeError(f"the owner is of another type than {USER_TYPE}")


def refuse_create_delegation_token(
    _request: CreateDelegationTokenRequest, failure: Failure
) -> CreateDelegationTokenResponse:
    """Returns the answer to a request that failed: nobody is told in it."""
    return CreateDelegationTokenResponse(
        failure.code, USER_TYPE, ANONYMOUS.name, USER_TYPE, ANONYMOUS.name, NO_TIME, NO_TIME, NO_TIME
    )


# ---- RenewDelegationToken, ExpireDelegationToken ---------------------------------------------------------------------


async def renew_delegation_token(
    node: KafkaNode, request: RenewDelegationTokenRequest, call: Call
) -> RenewDelegationTokenResponse:
    """Lets a token hold longer."""
    try:
        _require_allowed(node, call)
    except DelegationTokenRequestNotAllowedError as error:
        return RenewDelegationTokenResponse(error.code, NO_TIME)
    wish = RenewDelegationToken(bytes(request.hmac), request.renew_period_ms)
    renewed = await node.change(wish, node.request_timeout_ms, call.rights)
    return RenewDelegationTokenResponse(0, renewed.expiry_timestamp_ms)


async def expire_delegation_token(
    node: KafkaNode, request: ExpireDelegationTokenRequest, call: Call
) -> ExpireDelegationTokenResponse:
    """Sets when a token ends."""
    try:
        _require_allowed(node, call)
    except DelegationTokenRequestNotAllowedError as error:
        return ExpireDelegationTokenResponse(error.code, NO_TIME)
    wish = ExpireDelegationToken(bytes(request.hmac), request.expiry_time_period_ms)
    ending = await node.change(wish, node.request_timeout_ms, call.rights)
    return ExpireDelegationTokenResponse(0, ending.expiry_timestamp_ms)


# ---- DescribeDelegationToken -----------------------------------------------------------------------------------------


async def describe_delegation_token(
    node: KafkaNode, request: DescribeDelegationTokenRequest, call: Call
) -> DescribeDelegationTokenResponse:
    """Returns the tokens of the owners and renewers that are named, or of all, as far as the client may know them."""
    _require_allowed(node, call)
    key = node.token_key
    if key is None:
        raise DelegationTokenDisabledError("this node has no delegation tokens: set delegation.token.secret.key")
    owners = request.owners
    require_few(len(owners or ()), "owners")
    names = None if owners is None else {each.principal_name for each in owners if each.principal_type == USER_TYPE}
    found: list[_Described] = []
    for number, (_, token) in enumerate(sorted(node.image.delegation_tokens.items()), 1):
        if _is_asked_for(token, names) and _may_know(call, token):
            found.append(_described(token, key))
        if number % STEP == 0:
            await asyncio.sleep(0)
    return DescribeDelegationTokenResponse(tokens=found)


def _is_asked_for(token: DelegationToken, names: set[str] | None) -> bool:
    return names is None or not names.isdisjoint((token.owner, *token.renewers))


def _may_know(call: Call, token: DelegationToken) -> bool:
    rights = call.rights
    return (
        token.may_be_renewed_by(call.caller.principal.name)
        or rights.sees(AclOperation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, token.token_id)
        or rights.sees(AclOperation.DESCRIBE_TOKENS, ResourceKind.USER, f"{USER_TYPE}:{token.owner}")
    )


def _described(token: DelegationToken, key: TokenKey) -> _Described:
    return _Described(
        USER_TYPE,
        token.owner,
        USER_TYPE,
        token.requester,
        token.issue_timestamp_ms,
        token.expiry_timestamp_ms,
        token.max_timestamp_ms,
        token.token_id,
        key.hmac_of(token.token_id),
        [_Renewer(USER_TYPE, each) for each in token.renewers],
    )
