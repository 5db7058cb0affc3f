"""Users are described, given passwords and removed: DescribeUserScramCredentials, AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from replog.access.credentials import ScramMechanism
from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import lacking, raise_if_refused
from replog.waiting.asks import Asks
from replog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from replog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_MECHANISMS: Final = {int(each): each.sasl_name for each in ScramMechanism}


class DescribeUsers(Asks["UsersDescribed"], frozen=True):
    """Asks for all users that can log in by a password."""


class UsersDescribed(Struct, frozen=True):
    """By the name of the user, and that of a mechanism: how often the password is hashed."""

    users: Mapping[str, Mapping[str, int]]


class AlterUser(Asks["UserAltered"], frozen=True):
    """Gives a user a password for one mechanism, or takes it away; the password itself is not told.

    Attributes:
        name: The name of the user.
        mechanism: The mechanism.
        salted: The salted password; b"": it is taken away.
        salt: The salt.
        iterations: How often the password was hashed.
    """

    name: str
    mechanism: ScramMechanism
    salted: bytes = b""
    salt: bytes = b""
    iterations: int = 0

    def __repr__(self) -> str:
        """Shows no bytes: whoever has the salted password can log in."""
        return f"AlterUser(name={self.name!r}, mechanism={self.mechanism!r})"


class UserAltered(Struct, frozen=True):
    pass


async def describe_users(broker: Broker, _question: DescribeUsers, timeout_ms: int) -> UsersDescribed:
    """Returns all users, by name."""
    request = DescribeUserScramCredentialsRequest(users=None)
    answer = await broker.ask(request, DescribeUserScramCredentialsResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, answer.error_message)
    found = {
        one.user: {
            _MECHANISMS.get(each.mechanism, f"mechanism {each.mechanism}"): each.iterations
            for each in sorted(one.credential_infos, key=lambda each: each.mechanism)
        }
        for one in answer.results
        if not one.error_code
    }
    return UsersDescribed({name: found[name] for name in sorted(found)})


async def alter_user(broker: Broker, question: AlterUser, timeout_ms: int) -> UserAltered:
    """Gives a user a password, or takes it away.

    Raises:
        UnacceptableCredentialError: The name is none, or the iterations are too few or too many.
        ResourceNotFoundError: What is to be taken away is not there.
    """
    request = AlterUserScramCredentialsRequest()
    if question.salted:
        given = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
        request.upsertions.append(
            given(question.name, question.mechanism, question.iterations, question.salt, question.salted)
        )
    else:
        taken = AlterUserScramCredentialsRequest.ScramCredentialDeletion
        request.deletions.append(taken(question.name, question.mechanism))
    answer = await broker.ask(request, AlterUserScramCredentialsResponse, timeout_ms=timeout_ms)
    result = next((one for one in answer.results if one.user == question.name), None)
    if result is None:
        raise lacking(broker, f'user "{question.name}"')
    raise_if_refused(result.error_code, result.error_message)
    return UserAltered()


QUESTIONS: Final[Mapping[type[Any], Question]] = {DescribeUsers: describe_users, AlterUser: alter_user}
"""By the class of the question."""
