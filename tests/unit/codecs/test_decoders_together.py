"""Decoders of one class that several threads build, or that an interrupt hits: msgspec would end the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLASSES = """
import signal, sys, threading
from msgspec import Struct, json, msgpack
from replog.codecs.json_text import Json
from replog.protocol.private import PrivateApi

step = lambda: None  # while the inner class is looked at; the outer one is known in part

def inner():
    step()
    return int

class Inner(Struct):
    number: "inner()"

class Back(Struct):
    outer: "Outer | None"

class Outer(Struct):
    back: Back | None
    inner: Inner

INNERMOST = Outer(None, Inner(2))
VALUE = Outer(Back(INNERMOST), Inner(2))
fields = iter(["_answers", "_requests"])

def build():
    if sys.argv[1] == "json":
        return Json(Outer).decode(json.encode(VALUE))
    return getattr(PrivateApi(20_000, Outer, Outer), next(fields)).decode(msgpack.encode(VALUE))
"""

TOGETHER = """
second, built = threading.Thread(target=lambda: built.append(build())), []

def step():
    if second.ident is None:  # the second thread begins while the first one builds
        second.start()
        second.join(0.3)  # without a guard it is through before that

assert build() == VALUE
second.join()
assert built == [VALUE]
"""

INTERRUPTED = """
def step():
    global step
    step = lambda: None
    signal.raise_signal(signal.SIGINT)

try:
    build()
except KeyboardInterrupt:
    pass
assert build() == VALUE
"""


@pytest.mark.parametrize(("kind", "program"), [("json", TOGETHER), ("private", TOGETHER), ("json", INTERRUPTED)])
def test_a_class_that_msgspec_knows_in_part_is_met_by_nobody(kind: str, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLASSES + program, kind], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
