"""The logins of a node's clients: which mechanisms each listener offers, and what proves who a client is."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from replog.access.credentials import SaslMechanism, ScramCredential, ScramMechanism
from replog.access.exchanges import (
    SCRAM_MECHANISMS,
    BearerExchange,
    Identity,
    Passwords,
    PlainExchange,
    ScramExchange,
    ServerExchange,
)
from replog.access.principal import ANONYMOUS
from replog.access.token_key import TokenKey
from replog.config.server import ServerConfig
from replog.protocol.handlers.node import KafkaNode
from replog.protocol.login import KafkaLogin, LoginRules
from replog.protocol.server import KafkaServer
from replog.tcp.answers import Answer
from replog.tcp.connection import Caller
from replog.tcp.login import MakeLogin

if TYPE_CHECKING:
    from replog.broker.node.tokens import Tokens

T = TypeVar("T")

THREADS = 2
"""Threads that hash passwords and verify tokens: apart from those of other work, so that strangers who guess do not hold that up."""

_SECRET_BYTES = 32


class Logins:
    """Makes the logins of all listeners of a node.

    Args:
        config: The configuration of the node.
        node: The node, whose metadata have the users.
        server: The server that answers ApiVersions.
    """

    def __init__(self, config: ServerConfig, node: KafkaNode, server: KafkaServer) -> None:
        self._config = config
        self._node = node
        self._server = server
        self._threads: ThreadPoolExecutor | None = None
        self._tokens: dict[str, Tokens] = {}
        self._passwords = Passwords(self._find, secrets.token_bytes(_SECRET_BYTES))

    async def begin(self, listener: str) -> MakeLogin | None:
        """Returns the function that makes the login of a connection at a listener; None: nobody logs in there.

        Raises:
            ConfigError: What it takes to verify tokens is not there.
        """
        protocol = self._config.protocol_of(listener)
        if protocol is None or not protocol.is_sasl:
            return None
        keys = self._config.security_of(listener)
        if SaslMechanism.OAUTHBEARER in keys.sasl_enabled_mechanisms:
            from replog.broker.node.tokens import Tokens  # an extra

            self._tokens[listener] = Tokens(keys, listener, self._run)
            await self._tokens[listener].start()
        rules = LoginRules(
            {mechanism: self._exchanges(mechanism, listener) for mechanism in keys.sasl_enabled_mechanisms},
            self._answer_versions,
            keys.connections_max_reauth_ms,
            self._config.sasl_server_max_receive_size,
            self._config.connection_failed_authentication_delay_ms / 1000,
        )
        return partial(KafkaLogin, rules)

    async def _answer_versions(self, frame: memoryview) -> Answer | None:
        return await self._server.serve(frame, Caller(ANONYMOUS))

    def stop(self) -> None:
        """Ends the threads; what waits for one is given up."""
        for tokens in self._tokens.values():
            tokens.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _exchanges(self, mechanism: SaslMechanism, listener: str) -> Callable[[], ServerExchange]:
        if mechanism in SCRAM_MECHANISMS:
            tokens = None if self._node.token_key is None else partial(self._find_token, self._node.token_key)
            return partial(ScramExchange, SCRAM_MECHANISMS[mechanism], self._passwords, tokens=tokens)
        if mechanism is SaslMechanism.OAUTHBEARER:
            return partial(BearerExchange, self._tokens[listener].verify)
        return partial(PlainExchange, self._passwords, self._run)

    def _find(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        return self._node.image.scram_credentials.get((name, mechanism))

    async def _find_token(
        self, key: TokenKey, mechanism: ScramMechanism, token_id: str
    ) -> tuple[ScramCredential, Identity | None]:
        credential = await self._run(lambda: key.credential(mechanism, token_id))
        token = self._node.image.delegation_tokens.get(token_id)
        if token is None or token.has_expired(self._node.wall_ms()):
            return credential, None
        return credential, Identity(token.owner, token.expiry_timestamp_ms, token_authenticated=True)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "replog-login")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
