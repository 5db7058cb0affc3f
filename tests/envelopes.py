"""What clients ask for, as nodes pass it on: in an envelope that says who asks."""

from __future__ import annotations

from typing import Any

from replog.access.authorizer import OPEN
from replog.access.principal import ClientIdentity, Envelope, Principal
from replog.access.rights import Rights
from replog.controller.requests import ClientChange
from replog.protocol.audit import Audit
from replog.rpc.node_requests import VoterChange

CLIENT = ClientIdentity(Principal("client"), "10.0.0.7")
ADMIN = ClientIdentity(Principal("admin"), "10.0.0.1")
"""The super user of nodes that have an authorizer."""


def sender(client: ClientIdentity, api: str = "") -> Rights:
    """The client as a broker without an authorizer hands it on with a change."""
    return Rights(OPEN, client, api, Audit().denied)


def in_envelope(request: Any) -> Any:
    """A change of `CLIENT`; what is in an envelope already, or asked for by nodes, as it is."""
    return Envelope(request, CLIENT) if isinstance(request, ClientChange | VoterChange) else request
