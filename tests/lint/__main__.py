"""Says everything that is wrong with how code, tests and documents are written: `python -m tests.lint`, as `make lint` does.

Each module beside this one is a rule: its docstring says which, and `violations` finds what breaks it.
"""

from __future__ import annotations

import sys

from tests.lint import (
    class_names,
    client_names,
    configuration_page,
    docstrings,
    documents,
    error_names,
    folders,
    invariant_labels,
    kafka_page,
    log_state,
    named_files,
    open_log_page,
    page_commands,
    page_examples,
    parts_of_tests,
    sync_clients,
    waits,
)

RULES = (
    class_names,
    client_names,
    configuration_page,
    docstrings,
    documents,
    error_names,
    folders,
    invariant_labels,
    kafka_page,
    log_state,
    named_files,
    open_log_page,
    page_commands,
    page_examples,
    parts_of_tests,
    sync_clients,
    waits,
)


def main() -> int:
    """Prints each violation, and returns 1 if there is one."""
    found = [f"{rule.__name__.rpartition('.')[2]}: {line}" for rule in RULES for line in rule.violations()]
    print("\n".join([*found, f"{len(found)} violations of {len(RULES)} rules"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
