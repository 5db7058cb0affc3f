"""Tables in Spark's catalog (`CREATE TABLE ... USING replog`), which Spark gives to Python data sources without their options.

Spark tells a table's options once, where it has to ask for the columns, together with names of its own (`provider`, `owner`, and each
option again as `option.NAME`).  Each query of the table comes without any of them.  Seen with PySpark 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from replog.errors import ConfigError

_BY_CATALOG = "provider"
"""What Spark adds to the options of a table that it is making, and to nothing else."""

_USE = "SELECT ... FROM rides WITH ('bootstrap.servers' = '...', 'subscribe' = 'rides')"
_VIEW = "CREATE TEMPORARY VIEW rides USING replog OPTIONS (`bootstrap.servers` '...', subscribe 'rides')"


def check_arrived(options: Mapping[str, str]) -> None:
    """Refuses a read or a write that came without any option.

    Raises:
        ConfigError: There is none.
    """
    if not options:
        raise ConfigError(
            "bootstrap.servers",
            None,
            'give the options "bootstrap.servers" and "subscribe", or "topic" where you write: none has arrived. Spark gives a '
            f"Python data source none of the options of CREATE TABLE. Name them with each use, {_USE}, or make a view: {_VIEW}",
        )


def refuse_table(options: Mapping[str, str]) -> None:
    """Refuses to be the source of a table that no query could use as it was declared.

    Raises:
        ConfigError: The options are those of a table that Spark is making.
    """
    if any(name.lower() == _BY_CATALOG for name in options):
        raise ConfigError(
            _BY_CATALOG,
            None,
            "CREATE TABLE ... USING replog OPTIONS is refused: Spark would give none of these options to the queries of the "
            f"table. Make a view: {_VIEW}",
        )
