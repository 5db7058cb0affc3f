"""What the files of a log directory say, as rows.

A row is a flat mapping with a `kind`; `replog log dump` prints rows as text or as JSON lines.  Nothing here writes,
locks or truncates, so it may look at the files of a running node: what is being appended may then show as a torn tail.
"""

from replog.cli.dump.dispatch import dump_path
from replog.cli.dump.rows import DAMAGE_KINDS, Row, row_as_text

__all__ = ["DAMAGE_KINDS", "Row", "dump_path", "row_as_text"]
