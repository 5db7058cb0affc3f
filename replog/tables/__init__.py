"""Topics as tables: `replog.scan` hands a topic, or folders with its logs, to pyarrow and what reads from it (docs/TABLES.md)."""

from typing import TYPE_CHECKING

from replog.host.late_names import late_names

if TYPE_CHECKING:
    from replog.tables.scanning import scan
    from replog.tables.sync_table import SyncTable
    from replog.tables.table import Table, TableChange

__all__ = ["SyncTable", "Table", "TableChange", "scan"]

__getattr__, __dir__ = late_names(
    __name__,
    {
        "SyncTable": "replog.tables.sync_table",
        "TableChange": "replog.tables.table",
        "Table": "replog.tables.table",
        "scan": "replog.tables.scanning",
    },
)
