"""Names of folders that trip who quotes, decodes or splits them."""

from __future__ import annotations

import os

ODD_NAMES = (
    "two words",
    "50%",
    "%41%2f",
    "a#b",
    "new\nline",
    "quote'\"`$HOME",
    "-dash",
    "{brace}",
    "ü",
    os.fsdecode(b"not utf-8 \xff\xfe"),
)

LOOP = "loop"
TOO_LONG = "x" * 256
