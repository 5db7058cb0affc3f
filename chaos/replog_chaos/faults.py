"""What can happen to a cluster of real processes, by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from replog_chaos.clock_faults import CLOCK_FAULTS
from replog_chaos.disk_faults import DISK_FAULTS
from replog_chaos.fault import Fault
from replog_chaos.network_faults import NAMESPACE_FAULTS, NETWORK_FAULTS
from replog_chaos.process_faults import PROCESS_FAULTS
from replog_chaos.reassign_faults import REASSIGN_FAULTS

FAULTS: Mapping[str, Fault] = {
    **PROCESS_FAULTS,
    **REASSIGN_FAULTS,
    **NETWORK_FAULTS,
    **DISK_FAULTS,
    **CLOCK_FAULTS,
}
"""By the names that `--faults` takes."""


class Links(Enum):
    """The means by which links are cut."""

    PROXIES = "proxies"
    NAMESPACES = "namespaces"


def faults_with(links: Links) -> Mapping[str, Fault]:
    """Returns all faults, those of links by the given means."""
    return {**FAULTS, **NAMESPACE_FAULTS} if links is Links.NAMESPACES else FAULTS
