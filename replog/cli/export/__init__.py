"""One log as a file for other tools: Arrow IPC, Parquet or JSON lines.

Reads through `Log.open_read_only`: no lock, not a byte of the log is changed, so it may be the log of a running node.

    LogSource.runs()            whole batches of data, 256 KiB at a time
      -> Sink.write(run)        decoded into columns or lines; about 16 MiB are held back for a row group
        -> replaced_file()      a temporary file, renamed when all of it is on the disk
"""

from replog.cli.export.command import Exported, ExportRequest, export_log

__all__ = ["ExportRequest", "Exported", "export_log"]
