"""What a node loads when it first needs it: the coordinators of groups and of transactions, and each API of clients.

A broker within a program, as of a test, begins without them.  A process of its own loads everything before it serves: a
package that is replaced under a running broker must not give it parts of another version, and no request waits for files.
"""

from __future__ import annotations

from replog.protocol import served


def load_late_modules() -> None:
    """Loads them all, and the parser of a node's file; each only to have it."""
    import tomllib  # noqa: F401 -- as said

    import replog.broker.coordinator.shard_host
    import replog.coordinator.group_machine
    import replog.coordinator.group_records
    import replog.coordinator.transactions.machine  # noqa: F401 -- as said

    served.load_all()
