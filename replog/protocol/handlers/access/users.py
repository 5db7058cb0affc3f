"""Users and what is kept of their passwords: DescribeUserScramCredentials, AlterUserScramCredentials (KIP-554).

A request brings salted passwords.  What a server keeps is made of them here, so that no other node and no file ever has them:
with a salted password anybody could log in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from replog.access.credentials import ScramCredential, ScramMechanism
from replog.access.scram import credential_of
from replog.controller.requests import AlterableScramCredential, AlterUserScramCredentials
from replog.errors import ErrorCode
from replog.metadata.image import ScramUser
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, own_text, require_few, text
from replog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from replog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_Deletion: TypeAlias = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion: TypeAlias = AlterUserScramCredentialsRequest.ScramCredentialUpsertion

_MECHANISMS: Mapping[int, ScramMechanism] = {int(each): each for each in ScramMechanism}
_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Info = DescribeUserScramCredentialsResponse.CredentialInfo
_Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


async def describe_user_scram_credentials(
    node: KafkaNode, request: DescribeUserScramCredentialsRequest, _call: Call
) -> DescribeUserScramCredentialsResponse:
    """Returns the mechanisms and iterations of the users that are named, or of all."""
    require_few(len(request.users or ()), "users")
    kept = node.image.scram_credentials
    results = await beside(len(kept), _described, request, kept)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(
    request: DescribeUserScramCredentialsRequest, kept: Mapping[ScramUser, ScramCredential]
) -> list[_Described]:
    infos: dict[str, list[_Info]] = {}
    for (name, mechanism), credential in sorted(kept.items(), key=lambda item: item[0]):
        infos.setdefault(name, []).append(_Info(int(mechanism), credential.iterations))
    times = Counter(user.name for user in request.users or ()) or dict.fromkeys(infos, 1)
    return [_description(name, infos.get(name, []), count) for name, count in times.items()]


def _description(name: str, infos: list[_Info], count: int) -> _Described:
    if count > 1:
        return _Described(name, ErrorCode.DUPLICATE_RESOURCE, text(f'user "{name}" is named more than once'))
    if not infos:
        return _Described(name, ErrorCode.RESOURCE_NOT_FOUND, text(f'user "{name}" has no credential'))
    return _Described(name, error_message=None, credential_infos=infos)


async def alter_user_scram_credentials(
    node: KafkaNode, request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse:
    """Gives users credentials, and takes them away."""
    wishes = _wishes(request)
    require_few(len(wishes), "credentials of users")
    refused = {
        each.name: Failure(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f'user "{each.name}": there is no mechanism {each.mechanism} of SCRAM; 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512',
        )
        for each in wishes
        if each.mechanism not in _MECHANISMS
    }
    found = {each.name: Failure(ErrorCode.NONE, "") for each in wishes} | refused
    asked = await beside(len(request.upsertions), _asked, request, refused)
    if asked:
        altered = await node.change(AlterUserScramCredentials(asked), node.request_timeout_ms, call.rights)
        found |= {one.name: Failure(one.error, own_text(one.error, one.message)) for one in altered.users}
    results = [_Altered(name, told.code, text(told.message)) for name, told in found.items()]
    return AlterUserScramCredentialsResponse(results=results)


def _wishes(request: AlterUserScramCredentialsRequest) -> list[_Deletion | _Upsertion]:
    return [*request.deletions, *request.upsertions]


def _asked(
    request: AlterUserScramCredentialsRequest, refused: Mapping[str, Failure]
) -> tuple[AlterableScramCredential, ...]:
    removed = [
        AlterableScramCredential(each.name, _MECHANISMS[each.mechanism])
        for each in request.deletions
        if each.name not in refused
    ]
    given = [_given(each) for each in request.upsertions if each.name not in refused]
    return (*removed, *given)


def _given(each: _Upsertion) -> AlterableScramCredential:
    mechanism = _MECHANISMS[each.mechanism]
    credential = credential_of(mechanism, bytes(each.salted_password), bytes(each.salt), each.iterations)
    return AlterableScramCredential(each.name, mechanism, credential)


def refuse_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, failure: Failure
) -> AlterUserScramCredentialsResponse:
    """Returns the answer to a request that failed: nothing has changed."""
    names = dict.fromkeys(each.name for each in _wishes(request))
    return AlterUserScramCredentialsResponse(results=[_Altered(name, failure.code, failure.message) for name in names])
