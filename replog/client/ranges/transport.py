"""How tasks get their bytes: the options for that, of batch reads and of streams."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class ReadTransport(Struct, frozen=True):
    """How a task gets its bytes.

    Attributes:
        direct_reads: Whether segment files are read where a replica is on the task's machine.
        verify_crc: Whether checksums are looked at.
        client_rack: The rack of the tasks: a replica in it is preferred to the leader; "": the leader.
    """

    direct_reads: bool = True
    verify_crc: bool = True
    client_rack: str = ""


class RangeOptions(Protocol):
    """What reading a range has to know of the options of a query."""

    @property
    def fail_on_data_loss(self) -> bool: ...
    @property
    def poll_timeout_ms(self) -> int | None: ...
    @property
    def transport(self) -> ReadTransport: ...
