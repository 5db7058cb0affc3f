"""Topics as tables: `replog.scan` hands a topic, or folders with its logs, to pyarrow and what reads from it (docs/TABLES.md)."""

from typing import TYPE_CHECKING

from replog.host.late_names import late_names

if TYPE_CHECKING:
    from replog.tables.scanning import scan

__all__ = ["scan"]

__getattr__, __dir__ = late_names(__name__, {"scan": "replog.tables.scanning"})
