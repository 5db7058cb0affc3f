"""What a node may say of where it listens: every node and client connects to that, and the metadata log keeps it."""

from __future__ import annotations

from collections.abc import Sequence

from replog.errors import InvalidRequestError
from replog.metadata.records import BrokerEndpoint

HOST_LENGTH_MAX = 255
"""Of a name in the DNS."""

LISTENER_NAME_LENGTH_MAX = 64

ENDPOINTS_MAX = 16
"""Of one broker."""


def check_address(node: str, host: str, port: int) -> None:
    """Refuses an address that cannot be one.

    Raises:
        InvalidRequestError: The host is empty, too long or not printable, or the port is none.
    """
    if not _is_word(host, HOST_LENGTH_MAX):
        raise InvalidRequestError(f"{node}: its host must be 1 to {HOST_LENGTH_MAX} characters without spaces")
    if not 0 < port < 2**16:
        raise InvalidRequestError(f"{node}: ports are from 1 to 65535, {port} is none")


def check_endpoints(node: str, endpoints: Sequence[BrokerEndpoint]) -> None:
    """Refuses endpoints of which one cannot be, or that are too many, or two of one listener.

    Raises:
        InvalidRequestError: They are such.
    """
    if len(endpoints) > ENDPOINTS_MAX:
        raise InvalidRequestError(f"{node} names {len(endpoints)} endpoints, {ENDPOINTS_MAX} may be")
    for endpoint in endpoints:
        if not _is_word(endpoint.name, LISTENER_NAME_LENGTH_MAX):
            raise InvalidRequestError(
                f"{node}: the name of a listener must be 1 to {LISTENER_NAME_LENGTH_MAX} characters without spaces"
            )
        check_address(f"listener {endpoint.name} of {node}", endpoint.host, endpoint.port)
    if len({endpoint.name for endpoint in endpoints}) < len(endpoints):
        raise InvalidRequestError(f"{node} names a listener twice: each has one endpoint")


def _is_word(text: str, length_max: int) -> bool:
    return 0 < len(text) <= length_max and text.isprintable() and " " not in text
