"""What a node prints: lines for people, or one JSON object a line for machines.

Events of partitions and of the metadata quorum carry their parts beside the line, as `extra` of the standard library's
logging: `event`, `partition`, `leader_epoch`, `reason` and the like (docs/OPERATIONS.md lists them).
"""

from __future__ import annotations

import logging
import sys
from enum import Enum

from replog.errors import ConfigError
from replog.host.extras import install_command

TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class LoggingFormat(Enum):
    """What a line looks like (`logging.format`)."""

    TEXT = "text"
    JSON = "json"


def print_logs() -> None:
    """Sends what is logged from now on to standard error, as text until the configuration is read."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=TEXT)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def set_format(logging_format: LoggingFormat, node_id: int) -> None:
    """Sets what lines look like from now on.

    Args:
        logging_format: The format of the lines.
        node_id: The number of this node, which stands in each JSON object, for collectors of several nodes.

    Raises:
        ConfigError: The library for JSON lines is missing.
    """
    formatter = logging.Formatter(TEXT) if logging_format is LoggingFormat.TEXT else _json_formatter(node_id)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)


def _json_formatter(node_id: int) -> logging.Formatter:
    try:
        from pythonjsonlogger.json import JsonFormatter
    except ModuleNotFoundError as error:
        raise ConfigError(
            "logging.format",
            LoggingFormat.JSON.value,
            f"logging.format=json needs the library python-json-logger: {install_command('json')}, or leave the key out",
        ) from error
    return JsonFormatter(
        "{levelname}{name}{message}",
        style="{",
        timestamp=True,
        static_fields={"node": node_id},
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "exception"},
    )
