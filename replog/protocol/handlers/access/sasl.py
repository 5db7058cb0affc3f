"""SaslHandshake and SaslAuthenticate where nobody can log in: at listeners without SASL, and where a login is over.

Those of a login never come here: `replog.protocol.login` answers them, before it is known who the client is.
"""

from __future__ import annotations

from replog.errors import ErrorCode
from replog.protocol.handlers.node import Call, KafkaNode
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_TOLD = "nobody logs in here: the listener has no SASL, or the login is over and is not renewed"


async def sasl_handshake(_node: KafkaNode, _request: SaslHandshakeRequest, _call: Call) -> SaslHandshakeResponse:
    """Refuses."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


async def sasl_authenticate(
    _node: KafkaNode, _request: SaslAuthenticateRequest, _call: Call
) -> SaslAuthenticateResponse:
    """Refuses."""
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, _TOLD)
