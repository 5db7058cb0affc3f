"""`docs/OPEN_LOG.md` has each setting of a local log with its default, and what pages say of damage is one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from replog.local import LocalLogConfig
from replog.log.recovery.cut_bytes import CUT_BYTES_MAX, CUT_FILES_MAX

ROOT = Path(__file__).parents[2]
PAGE = "docs/OPEN_LOG.md"
OUTSIDE = {"file_system"}
"""Arguments of `open_log` that are no field of the settings."""

NUMBERS = ("flush_interval_ms", "max_batch_bytes", "maintenance_interval_ms", "dirty_window_bytes")
EXACT = r"exact(ly)? after kill -9"
SAID = {
    "README.md": (
        "what was stored safely is never cut to make a start succeed",
        r"exactly what was fsynced after `kill -9`",
    ),
    PAGE: ("flushed-offset", EXACT, "--accept-loss"),
    "docs/RECOVERY.md": (
        "flushed-offset",
        EXACT,
        "--accept-loss",
        f"{CUT_FILES_MAX} files and {CUT_BYTES_MAX >> 20} MiB",
    ),
    "docs/FORMAT.md": ("flushed-offset", EXACT),
}
"""Patterns of what each page says; what they say is tested in `test_local_crash` and in the table of damages."""


def wrong_in_table(page: str) -> Iterator[str]:
    """Yields how the table of settings in the page differs from `LocalLogConfig`."""
    named = re.findall(r"^\| `(\w+)` \| (.*?) \|", page.split("## Settings")[1].split("##", 1)[0], re.MULTILINE)
    settings = {name: default.strip("`") for name, default in named}
    fields = {*LocalLogConfig.__struct_fields__, *OUTSIDE}
    yield from (f"has no setting {name}" for name in sorted(fields - settings.keys()))
    yield from (f"{name} is no setting" for name in sorted(settings.keys() - fields))
    config = LocalLogConfig()
    defaults = {name: f"{getattr(config, name):,}" for name in NUMBERS}
    for name, default in defaults.items():
        if settings.get(name, default) != default:
            yield f"the default of {name} is {default}, not {settings[name]}"


def violations() -> Iterator[str]:
    """Yields each setting that is wrong in the page, and each sentence on damage that a page lacks."""
    for name, said in SAID.items():
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        yield from (f"{name}: does not say {pattern!r}" for pattern in said if not re.search(pattern, text))
    yield from (f"{PAGE}: {wrong}" for wrong in wrong_in_table((ROOT / PAGE).read_text(encoding="utf-8")))
