"""Which brokers a query goes to, and how both are believed by each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from replog.errors import ConfigError

if TYPE_CHECKING:
    from replog.client.security.security import Security

PREFIX = "kafka."


class Brokers(Struct, frozen=True):
    """The brokers of a query.

    Attributes:
        servers: "host:port,host:port".
        security: TLS and the login; None: plain text.
    """

    servers: str
    security: Security | None = None


def security_of(texts: Mapping[str, str | None]) -> Security | None:
    """Returns what the options about security say; None where none is given.

    Args:
        texts: The texts of the options, by their names with the prefix; None: not given.

    Raises:
        ConfigError: One has no such value, is missing, or is of what replog has not.  No value is shown.
    """
    given = {name.removeprefix(PREFIX): text for name, text in texts.items() if text is not None}
    if not given:
        return None
    from replog.client.security.security import Security

    if "security.protocol" in given:
        given["security.protocol"] = given["security.protocol"].strip()
    try:
        security = Security.from_settings(given)
    except ConfigError as error:
        raise ConfigError(f"{PREFIX}{error.field}", None, f"{PREFIX}{error.reason}") from None
    return None if security == Security() else security
