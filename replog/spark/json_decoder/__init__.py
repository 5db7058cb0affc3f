"""Json values of records as Arrow columns: one object in each value, and its fields where a shape wants them.

Why not a json reader for files: those take what is between two brackets for a row, whichever record it came from, so a broken
value moves all that follow, and some end the process on input that is no json.  Here each value is read by itself, to its last
byte: it fits, or it is null or an error, and the next one is not touched by it.

**What fits** is json as RFC 8259 has it, in UTF-8, one object and whitespace around it; where it is read, also of the wanted
kind.  A field that is missing or null is null, one that nobody wants is checked and passed over, and of one that comes twice the
last counts.  Numbers must be whole and in range where they are read as integers, texts are texts and never made of numbers.

Compiled where that was built (`_compiled`), with a twin in pure Python, which also puts into words why a value does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.records._select import PURE
from replog.spark.json_decoder.model import CELLS_MAX, DEPTH_MAX, JsonColumn, JsonKind, Shape
from replog.spark.json_decoder.python_twin import misfit_of

if TYPE_CHECKING or PURE:  # the twin is the typed one; a test holds the compiled one to the same results
    from replog.spark.json_decoder import python_twin as decoder
else:
    try:
        from replog.spark.json_decoder import _compiled as decoder
    except ImportError:  # no compiler when this was installed, or a big-endian machine
        from replog.spark.json_decoder import python_twin as decoder

IMPLEMENTATION = decoder.IMPLEMENTATION
decode_values = decoder.decode_values

__all__ = ["CELLS_MAX", "DEPTH_MAX", "IMPLEMENTATION", "JsonColumn", "JsonKind", "Shape", "decode_values", "misfit_of"]
