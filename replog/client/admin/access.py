"""What an administrator does about access: access control lists, quotas, users with passwords, delegation tokens.

Base classes of `Admin`; every method retries what is worth retrying, for its time-out at most.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from replog.access.credentials import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism
from replog.access.entries import AclEntry, AclFilter, entry_problem
from replog.access.secret import Secret
from replog.client.admin.operations import in_parts
from replog.client.admin.together import AdminPart
from replog.client.arguments import items_of, require_mapping, require_text, texts_of, wrong_type
from replog.controller.requests import (
    AclResult,
    AlterClientQuotas,
    AlteredQuota,
    AlteredQuotaEntity,
    CreateAcls,
    DeleteAcls,
    QuotaEntityResult,
)
from replog.errors import ConfigError, ErrorCode, InvalidRequestError, ResourceNotFoundError
from replog.errors.choices import require_at_least, require_choice
from replog.errors.from_code import error_from_code
from replog.metadata.records import QuotaEntityPart

if TYPE_CHECKING:
    from replog.client.protocol.questions.delegation_tokens import HeldToken
    from replog.client.protocol.questions.quotas import EntityQuotas


T = TypeVar("T")


class AclOperations(AdminPart):
    """The methods about access control lists."""

    async def describe_acls(
        self, meant: AclFilter | None = None, *, timeout_ms: int | None = None
    ) -> tuple[AclEntry, ...]:
        """Returns the entries that a filter fits, in order, as one broker knows them; another may hear of a change a little later.

        Args:
            meant: The filter; None: all entries.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            ClusterAuthorizationError: The caller may not DESCRIBE the cluster.
            SecurityDisabledError: The broker has no authorizer.
        """
        from replog.client.protocol.questions.acls import DescribeAcls  # loaded with the first question of its kind

        question = DescribeAcls(_required(AclFilter, "meant", AclFilter() if meant is None else meant))
        return (await self._ask(question, timeout_ms, "describe access control lists")).entries

    async def create_acls(self, entries: Iterable[AclEntry], *, timeout_ms: int | None = None) -> None:
        """Adds entries; those that are there already stay.  Brokers that hear of it a little later decide as before until then.

        Args:
            entries: The entries.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            InvalidRequestError: An entry cannot be one; nothing was asked for.
            ClusterAuthorizationError: The caller may not ALTER the cluster.
            SecurityDisabledError: The broker has no authorizer.
            PolicyViolationError: There are too many entries; those before are there.
        """
        wanted = [
            _required(AclEntry, "entries", one) for one in items_of("entries", entries, "several of the class AclEntry")
        ]
        for entry in wanted:
            if (problem := entry_problem(entry)) is not None:
                from replog.access.sentences import sentence  # for people only

                raise InvalidRequestError(f"{sentence(entry)}: {problem}")
        for part in in_parts(wanted):
            _raise_first((await self._ask(CreateAcls(part), timeout_ms, "create access control entries")).results)

    async def delete_acls(self, filters: Iterable[AclFilter], *, timeout_ms: int | None = None) -> tuple[AclEntry, ...]:
        """Removes all entries that one of the filters fits, and returns them, each once, in order.

        An attempt whose answer was lost may have removed some, which a second one does not tell of.

        Args:
            filters: The filters; one that fits everything removes everything.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            ClusterAuthorizationError: The caller may not ALTER the cluster.
            SecurityDisabledError: The broker has no authorizer.
            PolicyViolationError: The filters are too many for one request.
        """
        asked = tuple(
            _required(AclFilter, "filters", one)
            for one in items_of("filters", filters, "several of the class AclFilter")
        )
        if not asked:
            return ()
        answer = await self._ask(DeleteAcls(asked), timeout_ms, "delete access control entries")
        _raise_first(answer.results)
        return tuple(sorted({entry for result in answer.results for entry in result.entries}))


def _required(cls: type[T], name: str, value: object) -> T:
    if not isinstance(value, cls):
        raise wrong_type(name, value, f"of the class {cls.__name__}")
    return value


def _raise_first(results: Sequence[AclResult | QuotaEntityResult]) -> None:
    for result in results:
        if result.error is not ErrorCode.NONE:
            raise error_from_code(result.error, result.message)


# ---- quotas ----------------------------------------------------------------------------------------------------------


class QuotaOperations(AdminPart):
    """The methods about quotas of clients (KIP-546)."""

    async def describe_quotas(self, *, timeout_ms: int | None = None) -> tuple[EntityQuotas, ...]:
        """Returns the quotas of all entities that have some.

        Args:
            timeout_ms: The limit of the whole call, in milliseconds.
        """
        from replog.client.protocol.questions.quotas import DescribeQuotas  # loaded with the first question of its kind

        return await self._ask(DescribeQuotas(), timeout_ms, "describe quotas")

    async def alter_quotas(
        self,
        entity: Mapping[str, str | None],
        limits: Mapping[str, float | None],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets quotas of an entity, each in force on every broker for itself, that of changed partitions at the controller; others stay.

        Args:
            entity: What they are of: names by the kinds `user`, `client-id`, or both, or by `ip`; None as a name: the default of all
                that have none of their own.
            limits: How much a second, by Kafka's names; None removes a quota.  Users and client ids have `producer_byte_rate` and
                `consumer_byte_rate` in bytes, `request_percentage` in percent of the time of a thread, and
                `controller_mutation_rate` in partitions that are created and deleted; an address has `connection_creation_rate`.
            validate_only: Whether the controller only judges the request, and changes nothing.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            InvalidRequestError: There is no such entity or quota, or a limit is not above 0, or too large.
            UnsupportedVersionError: The cluster is at a metadata version without quotas.
        """
        request = AlterClientQuotas((AlteredQuotaEntity(_parts(entity), _altered(limits)),), validate_only)
        _raise_first((await self._ask(request, timeout_ms, "alter quotas")).entities)


def _parts(entity: Mapping[str, str | None]) -> tuple[QuotaEntityPart, ...]:
    require_mapping("entity", entity, "a mapping of kinds to names")
    for kind, name in entity.items():
        require_text("a kind of entity", kind)
        if name is not None:
            require_text(f"the name of {kind}", name)
    return tuple(QuotaEntityPart(kind, name) for kind, name in entity.items())


def _altered(limits: Mapping[str, float | None]) -> tuple[AlteredQuota, ...]:
    require_mapping("limits", limits, "a mapping of quotas to numbers")
    for key, limit in limits.items():
        require_text("the name of a quota", key)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
            raise InvalidRequestError(f"{key} is {limit!r}, and has to be a number, or None to remove it")
    return tuple(AlteredQuota(key, None if limit is None else float(limit)) for key, limit in limits.items())


# ---- users -----------------------------------------------------------------------------------------------------------


_BY_NAME = {each.sasl_name: each for each in ScramMechanism}


class UserOperations(AdminPart):
    """The methods about users that log in by a password."""

    async def list_users(self, *, timeout_ms: int | None = None) -> Mapping[str, Mapping[str, int]]:
        """Returns the users by name, each with the mechanisms of SCRAM by which they log in, and how often the password is hashed."""
        from replog.client.protocol.questions.users import DescribeUsers

        return (await self._ask(DescribeUsers(), timeout_ms, "list the users")).users

    async def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Sequence[str] = tuple(_BY_NAME),
        iterations: int = ITERATIONS_MIN,
        timeout_ms: int | None = None,
    ) -> None:
        """Gives a user a password, also one that there was not; the cluster is not told the password, and does not keep it.

        It is told what logs in, as Kafka's brokers are: over a connection that is not encrypted somebody may hear that.
        Brokers hear of it a moment later.  One request is made for each mechanism, so that an error may leave some without it.

        Args:
            user: The name of the user.
            password: The password.
            mechanisms: The mechanisms by which the user may log in with it; PLAIN needs one of them.
            iterations: How often it is hashed: 4,096 to 16,384.
            timeout_ms: The limit of each request, in milliseconds.

        Raises:
            ConfigError: There is no such mechanism, the password is empty, or the iterations are out of their range.
            UnacceptableCredentialError: The name is none.
        """
        from replog.access.scram import new_salt, salted_password
        from replog.client.protocol.questions.users import AlterUser

        require_text("user", user)
        require_text("password", password)
        if not password:
            raise ConfigError("password", None, "the password is empty")
        require_at_least("iterations", iterations, ITERATIONS_MIN, ITERATIONS_MAX)
        chosen = texts_of("mechanisms", mechanisms)
        for name in chosen:
            require_choice("mechanisms", name, tuple(_BY_NAME))
        for mechanism in (_BY_NAME[name] for name in chosen):
            salt = new_salt()
            salted = await asyncio.to_thread(salted_password, mechanism, password.encode(), salt, iterations)
            request = AlterUser(user, mechanism, salted, salt, iterations)
            await self._ask(request, timeout_ms, f"set the password of user {user}")

    async def remove_user(self, user: str, *, timeout_ms: int | None = None) -> None:
        """Takes all passwords of a user away.  Who is logged in stays so until the login is renewed (`connections.max.reauth.ms`).

        Raises:
            ResourceNotFoundError: There is no such user.
        """
        from replog.client.protocol.questions.users import AlterUser

        require_text("user", user)
        found = (await self.list_users(timeout_ms=timeout_ms)).get(user)
        if found is None:
            raise ResourceNotFoundError(f'there is no user "{user}"')
        for mechanism in (_BY_NAME[name] for name in found if name in _BY_NAME):
            with suppress(ResourceNotFoundError):  # an attempt that was lost has done it
                await self._ask(AlterUser(user, mechanism), timeout_ms, f"remove user {user}")


# ---- delegation tokens -----------------------------------------------------------------------------------------------


_PERIOD_MS_MAX: Final = 2**63 - 1


class DelegationTokenOperations(AdminPart):
    """The methods about delegation tokens (KIP-48), for clients that log in, or show a certificate, and not with such a token."""

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
        return await self._ask(MakeToken(owner, names, lifetime_ms), timeout_ms, "make a delegation token")

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
        return (await self._ask(DescribeTokens(names), timeout_ms, "describe delegation tokens")).tokens

    async def _set_expiry(self, hmac: Secret | str, period_ms: int, timeout_ms: int | None, *, renews: bool) -> int:
        from replog.client.protocol.questions.delegation_tokens import SetTokenExpiry

        question = SetTokenExpiry(_secret_hmac(hmac), period_ms, renews)
        what = "renew a delegation token" if renews else "end a delegation token"
        return (await self._ask(question, timeout_ms, what)).expiry_timestamp_ms


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
