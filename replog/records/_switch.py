"""The one place of this package that reads the environment: which codec to load."""

from __future__ import annotations

import os  # noqa: TID251 - the switch has to come from outside, before anything is configured

PURE = os.environ.get("REPLOG_PURE") == "1"
"""True forces the pure-Python twin, for comparing the two and where the compiled one is suspected."""
