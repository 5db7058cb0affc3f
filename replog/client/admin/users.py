"""Users that log in by a password: listed, added, removed.  A base class of `Admin`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from replog.access.credentials import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism
from replog.client.arguments import limit_ms, require_text, texts_of
from replog.client.cluster.view import ClusterView
from replog.errors import ConfigError, ResourceNotFoundError
from replog.errors.choices import require_at_least, require_choice

_BY_NAME = {each.sasl_name: each for each in ScramMechanism}


class UserOperations:
    """Needs what `Admin` has: a view of the cluster, and a time-out for methods that are given none."""

    _view: ClusterView
    _timeout_ms: int

    async def list_users(self, *, timeout_ms: int | None = None) -> Mapping[str, Mapping[str, int]]:
        """Returns the users by name, each with the mechanisms of SCRAM by which they log in, and how often the password is hashed."""
        from replog.client.protocol.questions.users import DescribeUsers

        limit = limit_ms(timeout_ms, self._timeout_ms)
        return (await self._view.call_any(DescribeUsers(), timeout_ms=limit, what="list the users")).users

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
            limit = limit_ms(timeout_ms, self._timeout_ms)
            await self._view.call_any(request, timeout_ms=limit, what=f"set the password of user {user}")

    async def remove_user(self, user: str, *, timeout_ms: int | None = None) -> None:
        """Takes all passwords of a user away.  Who is logged in stays so until the login is renewed (`connections.max.reauth.ms`).

        Raises:
            ResourceNotFoundError: There is no such user.
        """
        from replog.client.protocol.questions.users import AlterUser

        require_text("user", user)
        limit = limit_ms(timeout_ms, self._timeout_ms)
        found = (await self.list_users(timeout_ms=timeout_ms)).get(user)
        if found is None:
            raise ResourceNotFoundError(f'there is no user "{user}"')
        for mechanism in (_BY_NAME[name] for name in found if name in _BY_NAME):
            with suppress(ResourceNotFoundError):  # an attempt that was lost has done it
                request = AlterUser(user, mechanism)
                await self._view.call_any(request, timeout_ms=limit, what=f"remove user {user}")
