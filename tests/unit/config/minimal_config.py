"""The fewest keys that make a configuration, and what more of them are refused with."""

from __future__ import annotations

import pytest

from replog.config.server import ServerConfig
from replog.errors import ConfigError

MINIMAL: dict[str, object] = {"node.id": 1, "log.dirs": ["/data/replog"]}


def refused(values: dict[str, object], overrides: dict[str, object] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        ServerConfig.from_mapping(MINIMAL | values, overrides=overrides)
    return caught.value
