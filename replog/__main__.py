"""``python -m replog``: the `replog` command of this interpreter, also where its script is not on the path."""

from __future__ import annotations

from replog.cli.main import script

script()
