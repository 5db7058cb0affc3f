"""The public test kit: replacements for what a test cannot control, such as a disk that loses power."""

from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem

__all__ = ["Operation", "PowerCutError", "SimulatedFileSystem"]
