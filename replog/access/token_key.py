"""The key of a cluster's delegation tokens, and what follows from it: their HMACs, and what logins with them are verified by."""

from __future__ import annotations

import base64
import hmac
from typing import Final

from replog.access.credentials import ITERATIONS_MIN, ScramCredential, ScramMechanism
from replog.access.scram import credential_of, new_salt, salted_password

_HASH: Final = "sha512"


class TokenKey:
    """The key that makes the HMACs of tokens, `delegation.token.secret.key`; nothing shows it.

    Args:
        secret: The text of the key.
    """

    __slots__ = ("_key",)

    def __init__(self, secret: str) -> None:
        self._key = secret.encode()

    def __repr__(self) -> str:
        """Shows no byte: whoever has the key has every token."""
        return "TokenKey()"

    def hmac_of(self, token_id: str) -> bytes:
        """Returns the HMAC of a token, 64 bytes, as every node of the cluster and of Kafka's makes it."""
        return hmac.digest(self._key, token_id.encode(), _HASH)

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """Returns what a login with a token is verified by, as if it were kept; milliseconds of work, for a thread."""
        salt = new_salt()
        salted = salted_password(mechanism, token_password(self.hmac_of(token_id)).encode(), salt, ITERATIONS_MIN)
        return credential_of(mechanism, salted, salt, ITERATIONS_MIN)


def token_password(token_hmac: bytes) -> str:
    """Returns the password of a login with a token."""
    return base64.b64encode(token_hmac).decode()
