"""What clients ask for, as nodes pass it on: in an envelope that says who asks."""

from __future__ import annotations

from typing import Any

from replog.access.principal import ClientIdentity, Envelope, Principal
from replog.controller.requests import ClientChange
from replog.rpc.node_requests import VoterChange

CLIENT = ClientIdentity(Principal("client"), "10.0.0.7")
ADMIN = ClientIdentity(Principal("admin"), "10.0.0.1")
"""The super user of nodes that have an authorizer."""


def in_envelope(request: Any) -> Any:
    """A change of `CLIENT`; what is in an envelope already, or asked for by nodes, as it is."""
    return Envelope(request, CLIENT) if isinstance(request, ClientChange | VoterChange) else request
