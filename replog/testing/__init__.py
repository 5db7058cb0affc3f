"""The public test kit: replacements for what a test cannot control, such as a disk that loses power.

Whole nodes in virtual time stand in modules of their own, which load the broker: `simulated_cluster` (start there),
`virtual_loop`, `simulated_network`, `simulated_clock`; what clients were promised is checked by `history`.
"""

from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem

__all__ = ["Operation", "PowerCutError", "SimulatedFileSystem"]
