"""The login of Kafka's clients at a listener with SASL: SaslHandshake, SaslAuthenticate, and when a login has to be renewed.

| a client that is not known sends | what it is answered |
|---|---|
| ApiVersions, before it names a mechanism | as everywhere (KIP-35) |
| SaslHandshake 1 with a mechanism of the listener (KIP-43) | the mechanisms; the exchange begins |
| another mechanism, or SaslHandshake 0, behind which messages come without a header | the mechanisms and an error; the connection ends |
| SaslAuthenticate (KIP-152) | the next message of the mechanism, or an error late, and the end of the connection |
| anything else, or more than `FRAMES_MAX` of these | nothing: the connection ends |

Where a login holds for a time (KIP-368), the same exchange comes again before that is over, with the same mechanism and the same user.
Where none does, or a second time within a second, SaslHandshake is a request like any other one, and is refused.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from replog.access.credentials import SaslMechanism
from replog.access.exchanges import Identity, ServerExchange
from replog.access.principal import Principal
from replog.errors import BrokerNotAvailableError, ErrorCode, MalformedFrameError, SaslAuthenticationError
from replog.protocol.server import framed, written_buffers
from replog.tcp.answers import Answer
from replog.tcp.login import LoginStep
from replog.wire.messages.api_versions import ApiVersionsRequest
from replog.wire.messages.headers import RequestHeader
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from replog.wire.primitives import Reader

FRAMES_MAX: Final = 16
"""Requests of one login: a mechanism has a few messages, and a client asks for versions once or twice."""

RENEWAL_S_MIN: Final = 1.0
"""The least time between two renewals of a login, in seconds, as in Kafka."""

_HEADERS_FROM: Final = 1
"""The version of SaslHandshake from which on the messages of a mechanism are requests with headers."""

_ELEMENTS_MAX: Final = 16
"""The most elements of arrays of a message of a login, which has none."""

_start = struct.Struct(">hhi")

R = TypeVar("R", SaslHandshakeRequest, SaslAuthenticateRequest)


class LoginRules(Struct, frozen=True):
    """What the logins of one listener have in common.

    Attributes:
        exchanges: The function that begins an exchange, by the mechanisms that are offered, in their order.
        answer_versions: The function that answers ApiVersions.
        lifetime_ms: How long a login holds, in milliseconds; 0: as long as the connection.
        frame_bytes_max: The size of the largest frame before a login has succeeded.
        failure_delay_s: The seconds after which a client hears that it is not believed.
    """

    exchanges: Mapping[SaslMechanism, Callable[[], ServerExchange]]
    answer_versions: Callable[[memoryview], Awaitable[Answer | None]]
    lifetime_ms: int = 0
    frame_bytes_max: int = 64 << 10
    failure_delay_s: float = 0.1


class KafkaLogin:
    """The login of one connection; see `replog.tcp.login.Login`.

    Args:
        rules: What the logins of the listener have in common.
        clock: The function that returns seconds of a clock that only goes forward.
        wall_clock: The function that returns seconds since 1970.
    """

    def __init__(
        self,
        rules: LoginRules,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._wall_clock = wall_clock
        self._frames = 0
        self._mechanism: SaslMechanism | None = None  # of the login that holds, or is under way
        self._exchange: ServerExchange | None = None
        self._principal: Principal | None = None
        self._ends_s: float | None = None
        self._renewed_s: float | None = None  # when the last renewal began

    @property
    def frame_bytes_max(self) -> int:
        """See `Login`."""
        return self._rules.frame_bytes_max

    @property
    def failure_delay_s(self) -> float:
        """See `Login`."""
        return self._rules.failure_delay_s

    @property
    def has_run_out(self) -> bool:
        """See `Login`."""
        return self._ends_s is not None and self._clock() > self._ends_s

    def takes(self, frame: memoryview) -> bool:
        """Says whether a frame is one of the login (see `Login`): the handshake that begins a renewal, and all that comes before its end."""
        if self._exchange is not None:
            return True
        if self._ends_s is None or _start.unpack_from(frame)[0] != SaslHandshakeRequest.API_KEY:
            return False
        return self._renewed_s is None or self._clock() - self._renewed_s >= RENEWAL_S_MIN

    async def step(self, frame: memoryview) -> LoginStep:
        """Takes in a frame (see `Login`)."""
        key, version, correlation_id = _start.unpack_from(frame)
        self._frames += 1
        if self._frames > FRAMES_MAX:
            return LoginStep(refusal=f"it has sent {FRAMES_MAX} requests, and has not logged in")
        if key == ApiVersionsRequest.API_KEY and self._exchange is None and self._principal is None:
            return LoginStep(await self._rules.answer_versions(frame))
        if key == SaslHandshakeRequest.API_KEY and self._exchange is None:
            return self._begin(_read(SaslHandshakeRequest, frame, version), version, correlation_id)
        if key == SaslAuthenticateRequest.API_KEY and self._exchange is not None:
            asked = _read(SaslAuthenticateRequest, frame, version)
            return await self._go_on(self._exchange, bytes(asked.auth_bytes), version, correlation_id)
        return LoginStep(refusal=f"it has sent a request for API {key} where a login does not have it")

    def _begin(self, asked: SaslHandshakeRequest, version: int, correlation_id: int) -> LoginStep:
        """Begins an exchange, or says which mechanisms there are."""
        names = [each.value for each in self._rules.exchanges]
        mechanism = next((each for each in self._rules.exchanges if each.value == asked.mechanism), None)
        code, refusal = ErrorCode.NONE, ""
        if version < _HEADERS_FROM:
            code, refusal = ErrorCode.UNSUPPORTED_VERSION, "it wants SaslHandshake 0, whose messages have no header"
        elif mechanism is None:
            code, refusal = ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"it asks for the mechanism {asked.mechanism[:64]!r}"
        elif self._principal is not None and mechanism is not self._mechanism:
            code, refusal = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "it changes its mechanism"
        answer = _answer(SaslHandshakeResponse(code, names), version, correlation_id)
        if mechanism is None or refusal:
            return LoginStep(answer, refusal=refusal)
        if self._principal is not None:
            self._renewed_s, self._frames = self._clock(), 1
        self._mechanism = mechanism
        self._exchange = self._rules.exchanges[mechanism]()
        return LoginStep(answer)

    async def _go_on(self, exchange: ServerExchange, data: bytes, version: int, correlation_id: int) -> LoginStep:
        """Takes in a message of the mechanism."""
        try:
            reply = await exchange.reply(data)
            if reply.identity is not None:
                self._check_same(reply.identity)
        except BrokerNotAvailableError:  # the node does not know yet which users there are: the client goes elsewhere
            return LoginStep(Answer(is_last=True))
        except SaslAuthenticationError as error:
            name = "" if self._mechanism is None else self._mechanism.value
            told = f"Authentication failed: user, password or token of {name} are wrong"
            response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, told)
            return LoginStep(_answer(response, version, correlation_id), refusal=str(error))
        lifetime_ms = 0 if reply.identity is None else self._end(reply.identity)
        response = SaslAuthenticateResponse(0, None, reply.data, lifetime_ms)
        principal = None if reply.identity is None else self._principal
        return LoginStep(_answer(response, version, correlation_id), principal)

    def _check_same(self, identity: Identity) -> None:
        """Refuses a renewal by somebody else."""
        if self._principal is not None and self._principal.name != identity.name:
            raise SaslAuthenticationError("it says anew who it is, and is somebody else")

    def _end(self, identity: Identity) -> int:
        """Ends the exchange; returns for how many milliseconds the login holds, 0: as long as the connection."""
        self._exchange = None
        self._principal = Principal(identity.name, identity.token_authenticated)
        limits_ms = [self._rules.lifetime_ms] if self._rules.lifetime_ms else []
        if identity.expires_ms is not None:
            limits_ms.append(max(0, identity.expires_ms - int(self._wall_clock() * 1000)))
        if not limits_ms:
            return 0
        self._ends_s = self._clock() + min(limits_ms) / 1000
        return min(limits_ms)


def _read(request: type[R], frame: memoryview, version: int) -> R:
    """Returns a message of a login.

    Raises:
        MalformedFrameError: It is none, or of a version that there is not.
    """
    if version not in request.VERSIONS:
        raise MalformedFrameError(f"a request for API {request.API_KEY} in version {version}, which is not served")
    reader = Reader(frame, _ELEMENTS_MAX)
    RequestHeader.read(reader, 2 if version >= request.FLEXIBLE_FROM else 1)
    found: R = request.read(reader, version)
    return found


def _answer(response: SaslHandshakeResponse | SaslAuthenticateResponse, version: int, correlation_id: int) -> Answer:
    has_tags = version >= response.FLEXIBLE_FROM
    return framed(correlation_id, written_buffers(response, version), has_tags=has_tags)
