"""Json values to columns: the compiled decoder and its twin, against the standard library and against each other."""

from __future__ import annotations

import importlib
import json
import math
import struct
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.spark import json_decoder
from replog.spark.json_decoder import CELLS_MAX, DEPTH_MAX, JsonKind, Shape, misfit_of, python_twin
from replog.spark.json_decoder.arrow import arrow_type, json_array
from tests.random_examples import examples

try:
    compiled: ModuleType | None = importlib.import_module("replog.spark.json_decoder._compiled")
except ImportError:
    compiled = None
needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the extension is not built: python setup.py build_ext --inplace"
)

STRING, LONG, DOUBLE, BOOLEAN = (
    Shape(kind) for kind in (JsonKind.STRING, JsonKind.INT64, JsonKind.DOUBLE, JsonKind.BOOLEAN)
)
ALL_CELLS = 1 << 40


def struct_of(**fields: Shape) -> Shape:
    return Shape(JsonKind.STRUCT, tuple(fields), tuple(fields.values()))


def list_of(shape: Shape) -> Shape:
    return Shape(JsonKind.LIST, children=(shape,))


def map_of(shape: Shape) -> Shape:
    return Shape(JsonKind.MAP, children=(shape,))


@pytest.fixture(params=[python_twin, pytest.param(compiled, marks=needs_compiled)], ids=["python", "cython"])
def decoder(request: pytest.FixtureRequest) -> Any:
    return request.param


def decode(decoder: Any, shape: Shape, values: list[bytes | None], **how: Any) -> tuple[Any, int, bool]:
    validity, offsets, data = pa.array(values, pa.binary()).buffers()
    how = {"is_strict": False, "cells_max": ALL_CELLS, **how}
    found: tuple[Any, int, bool] = decoder.decode_values(shape, validity, offsets, data or b"", 0, len(values), **how)
    return found


def rows(decoder: Any, shape: Shape, values: list[bytes | None]) -> list[Any]:
    column, row, is_misfit = decode(decoder, shape, values)
    assert (row, is_misfit, column.length) == (len(values), False, len(values))
    array = json_array(column, arrow_type(shape))
    array.validate(full=True)
    found: list[Any] = array.to_pylist()
    return found


def test_fields_go_to_their_columns_and_others_are_passed_over(decoder: Any) -> None:
    shape = struct_of(id=LONG, city=STRING)
    values = [
        b'{"id": 1, "city": "Bern", "more": [{"x": [1.5e3, true, false, null, "y"]}]}',
        b'\n{"city":"Z\xc3\xbcrich","id":-9223372036854775808}\t',
        None,
        b"{}",
        b'{"city": null, "id": 3, "id": 9223372036854775807}',
    ]
    assert rows(decoder, shape, values) == [
        {"id": 1, "city": "Bern"},
        {"id": -(2**63), "city": "Zürich"},
        None,
        {"id": None, "city": None},
        {"id": 2**63 - 1, "city": None},
    ]


def test_nested_values_and_a_field_that_comes_twice(decoder: Any) -> None:
    """Goal: of a field that comes twice the last one counts, also where the first had more in it."""
    shape = struct_of(tags=list_of(list_of(LONG)), by=map_of(struct_of(a=STRING)), deep=struct_of(b=BOOLEAN))
    values: list[bytes | None] = [
        b'{"tags": [[1, null], null, []], "by": {"x": {"a": "1"}, "": {}, "x": null}, "deep": {"b": true}}',
        b'{"tags": [[1], [2, 3]], "tags": [[4]], "deep": {"b": false}, "deep": {}}',
        b'{"tags": [], "by": {}, "deep": null}',
    ]
    assert rows(decoder, shape, values) == [
        {
            "tags": [[1, None], None, []],
            "by": [("x", {"a": "1"}), ("", {"a": None}), ("x", None)],
            "deep": {"b": True},
        },
        {"tags": [[4]], "by": None, "deep": {"b": None}},
        {"tags": [], "by": [], "deep": None},
    ]


NO_JSON = [
    b"", b" ", b"{", b"}", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{,}", b'{"a":1}}', b'{"a":1} {"a":2}', b'{"a":1}x', b"{a:1}",
    b"{'a':1}", b'{"a":01}', b'{"a":1.}', b'{"a":.5}', b'{"a":+1}', b'{"a":1e}', b'{"a":-}', b'{"a":NaN}', b'{"a":Infinity}',
    b'{"a":-Infinity}', b'{"a":tru}', b'{"a":truex}', b'{"a":nul}', b'{"a":"}', b'{"a":"\\"}', b'{"a":"\\x"}', b'{"a":"\\u12"}',
    b'{"a":"\\ud800"}', b'{"a":"\\ud800\\u0041"}', b'{"a":"\\udc00"}', b'{"a":"\x00"}', b'{"a":"\n"}', b'{"a":"\xff"}',
    b'{"a":"\xc0\x80"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xf4\x90\x80\x80"}', b'{"a":"\xe2\x82"}', b'{"a":1]', b'{"a":[1}', b'{"a":[1,]}',
    b'{"a":/*1*/1}', b'\xef\xbb\xbf{"a":1}', b'{"a":1}\x00', b"\x00", b'{"a"\x00:1}', b'{\x0c"a":1}', b'{"a":1\xa0}',
]  # fmt: skip
NO_OBJECT = [b"null", b"true", b"1", b'"a"', b"[]", b'[{"a":1}]']


@pytest.mark.parametrize("name", ["a", "b"], ids=["in the field", "beside it"])
@pytest.mark.parametrize("value", NO_JSON + NO_OBJECT)
def test_what_is_no_json_object_is_null_and_moves_no_other(decoder: Any, value: bytes, name: str) -> None:
    shape = struct_of(**{name: LONG}, z=list_of(STRING))
    good = b'{"%s": 5, "z": ["x"]}' % name.encode()
    kept = {name: 5, "z": ["x"]}
    assert rows(decoder, shape, [good, value, good]) == [kept, None, kept]
    assert misfit_of(shape, value)


@pytest.mark.parametrize(
    ("shape", "fits", "misfits"),
    [
        (BOOLEAN, {"true": True, "false": False}, ["1", '"true"', "[]", "{}"]),
        (
            Shape(JsonKind.INT8),
            {"-128": -128, "127": 127, "-0": 0},
            ["128", "-129", "1.0", "1e0", '"1"', "true", "[1]"],
        ),
        (Shape(JsonKind.INT16), {"-32768": -(2**15), "32767": 2**15 - 1}, ["32768", "-32769"]),
        (Shape(JsonKind.INT32), {"-2147483648": -(2**31), "2147483647": 2**31 - 1}, ["2147483648", "-2147483649"]),
        (LONG, {}, ["9223372036854775808", "-9223372036854775809", "1" * 30, "1" * 5000]),
        (DOUBLE, {"1e999": math.inf, "-1e999": -math.inf, "1": 1.0, "0.1": 0.1, "5e-324": 5e-324}, ['"NaN"', "true"]),
        (Shape(JsonKind.FLOAT), {"1e40": math.inf, "0.1": struct.unpack("f", struct.pack("f", 0.1))[0]}, ['"1"']),
        (STRING, {'"\\u0000\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\\\\\""': '\0😀/\b\f\n\r\t\\"'}, ["1", "true", "[]", "{}"]),
        (Shape(JsonKind.DATE), {}, ["0", '"2024-02-30"', '""']),
        (Shape(JsonKind.TIMESTAMP), {}, ["0", '"2024-01-01T00:00:00"']),
        (Shape(JsonKind.DECIMAL, precision=3, scale=1), {}, ["100", '"x"', "true", "[]", '"1 "']),
        (list_of(LONG), {"[]": [], "[1]": [1]}, ["{}", "1", '["1"]', '""']),
        (map_of(LONG), {"{}": []}, ["[]", "1", '{"a": "1"}']),
        (struct_of(b=LONG), {"{}": {"b": None}}, ["[]", "1", '{"b": true}', '{"b": "x", "b": 1}']),
    ],
    ids=lambda value: value.kind.name if isinstance(value, Shape) else None,
)
def test_what_fits_and_what_does_not(decoder: Any, shape: Shape, fits: dict[str, Any], misfits: list[str]) -> None:
    whole = struct_of(a=shape)
    found = rows(decoder, whole, [f'{{"a": {text}}}'.encode() for text in [*fits, *misfits]])
    assert found == [{"a": value} for value in fits.values()] + [None] * len(misfits)
    for text in misfits:
        assert "does not fit the schema: 'a" in (misfit_of(whole, f'{{"a": {text}}}'.encode()) or "")


def test_a_negative_zero_stays_one(decoder: Any) -> None:
    texts = [b"-0", b"-0.0", b"-0e5", b"-1e-999"]
    found = rows(decoder, struct_of(a=DOUBLE), [b'{"a": %s}' % text for text in texts])
    assert [math.copysign(1, row["a"]) for row in found] == [-1] * 4


def test_texts_that_stand_for_something_else(decoder: Any) -> None:
    shape = struct_of(
        d=Shape(JsonKind.DATE), t=Shape(JsonKind.TIMESTAMP), p=list_of(Shape(JsonKind.DECIMAL, precision=38, scale=3))
    )
    value = b'{"d": "1969-12-31", "t": "1970-01-01T00:00:00.000001Z", "p": [-1.5, "2", 1e34, 0.0005]}'
    column, _, _ = decode(decoder, shape, [value])
    array = json_array(column, arrow_type(shape))
    assert array.field("d").cast(pa.int32()).to_pylist() == [-1]
    assert array.field("t").cast(pa.int64()).to_pylist() == [1]
    assert [str(each) for each in array.field("p").to_pylist()[0]] == ["-1.500", "2.000", f"1{'0' * 34}.000", "0.001"]


def test_a_strict_read_ends_before_what_does_not_fit(decoder: Any) -> None:
    values: list[bytes | None] = [b'{"a": 1}', None, b'{"a": "x"}', b'{"a": 2}']
    column, row, is_misfit = decode(decoder, struct_of(a=LONG), values, is_strict=True)
    assert (column.length, column.null_count, row, is_misfit) == (2, 1, 2, True)
    assert misfit_of(struct_of(a=LONG), b'{"a": "x"}') == "does not fit the schema: 'a' is a string, not a number"
    assert misfit_of(struct_of(a=LONG), b'{"a": 1}') is None


def test_memory_is_bounded_by_cells(decoder: Any) -> None:
    """Goal: small objects in a schema of many fields are decoded a few at a time, but never none."""
    shape = struct_of(**{f"field{number}": LONG for number in range(99)})
    column, row, is_misfit = decode(decoder, shape, [b"{}"] * 10, cells_max=250)
    assert (column.length, row, is_misfit) == (3, 3, False)
    assert decode(decoder, shape, [b"{}"] * 10, cells_max=1)[1] == 1


def test_one_value_cannot_become_too_many_cells(decoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    each, ends = (
        2 * (1 + 499) + 3,
        2,
    )  # cells of an element: two structs with their names, the map; of the list and the value
    count = (CELLS_MAX - ends) // each
    if decoder is python_twin:
        monkeypatch.setattr(python_twin, "CELLS_MAX", 2 * each + ends)
        count = 2
    shape = struct_of(a=list_of(map_of(struct_of(**{f"field{number}": LONG for number in range(499)}))))
    fits, does_not = (b'{"a": [%s]}' % b",".join([b'{"":{},"":{}}'] * number) for number in (count, count + 1))
    assert [row is None for row in rows(decoder, shape, [does_not, b"{}"])] == [True, False]
    assert decode(decoder, shape, [fits])[0].null_count == 0
    if decoder is python_twin:
        assert misfit_of(shape, does_not) == "would become more than 2008 cells"


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")], ids=["arrays", "objects"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_depth_is_bounded(decoder: Any, brackets: tuple[str, str], name: str) -> None:
    def nested(depth: int) -> bytes:
        return f'{{"{name}":{brackets[0] * (depth - 1)}1{brackets[1] * (depth - 1)}}}'.encode()

    shape = struct_of(a=LONG) if name == "b" else struct_of(b=LONG)
    deep = [nested(DEPTH_MAX), nested(DEPTH_MAX + 1), nested(100_000)]
    assert [row is None for row in rows(decoder, shape, [*deep, b"{}"])] == [False, True, True, False]
    assert misfit_of(shape, deep[2]) == f"is nested deeper than {DEPTH_MAX}"


def test_a_value_of_nine_megabytes(decoder: Any) -> None:
    value = b'{"n": 1%s, "s": "%s", "a": [%s0]}' % (b"0" * 3_000_000, b"\\u00e9" * 500_000, b"1, " * 100_000)
    (row,) = rows(decoder, struct_of(n=DOUBLE, s=STRING, a=list_of(Shape(JsonKind.INT8))), [value])
    assert (row["n"], row["s"], len(row["a"])) == (math.inf, "é" * 500_000, 100_001)


def test_buffers_that_cannot_be_are_refused(decoder: Any) -> None:
    how: dict[str, Any] = {"is_strict": False, "cells_max": ALL_CELLS}
    offsets = struct.pack("=3i", 0, 2, 4)
    for validity, ends, data, stop in [
        (None, offsets, b"{}{}", 3),
        (b"", offsets, b"{}{}", 2),
        (None, offsets, b"{}{", 2),
        (None, struct.pack("=2i", -1, 2), b"{}", 1),
        (None, struct.pack("=3i", 2, 1, 2), b"{}", 1),
    ]:
        with pytest.raises(ValueError):
            decoder.decode_values(struct_of(a=LONG), validity, ends, data, 0, stop, **how)


NAMES = st.sampled_from(["a", "b", "é", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4)
    | st.sampled_from(["2024-02-29", "2024-02-29T01:02:03.456Z", "1.25", "-7"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)
SCALARS = st.sampled_from([kind for kind in JsonKind if kind < JsonKind.DECIMAL]).map(Shape) | st.just(
    Shape(JsonKind.DECIMAL, precision=9, scale=2)
)


def structs(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    return st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(
        lambda fields: Shape(JsonKind.STRUCT, tuple(fields), tuple(fields.values()))
    )


SHAPES = structs(
    st.recursive(SCALARS, lambda inner: inner.map(list_of) | inner.map(map_of) | structs(inner), max_leaves=4)
)
SOUP = st.lists(
    st.sampled_from(
        [b'"a"', b'"b"', b":", b",", b"{", b"}", b"[", b"]", b"1", b"-", b"0", b".5", b"e3", b"true", b"null", b" ", b"\n", b'"',
         b"\\", b"u", b"d83d", b"\\ud83d\\ude00", b"\xff", b"\xc3\xa9", b"\x00", b'{"a":', b'"2024-01-01"']
    ),
    max_size=14,
).map(b"".join)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Json with a few bytes replaced, taken out or put in."""
    data = bytearray(
        json.dumps(draw(OBJECTS), ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1))).encode(
            errors="replace"
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b'"', b"{", b"}", b"]", b",", b"1", b"\\", b"\xed", b"\x1f", b'"a":1,', b"null"])
        )
    return bytes(data)


@needs_compiled
@settings(max_examples=examples(80), deadline=None)
@given(SHAPES, st.lists(st.none() | damaged() | SOUP, max_size=12), st.integers(1, 40), st.booleans())
def test_both_decoders_agree(shape: Shape, values: list[bytes | None], cells_max: int, is_strict: bool) -> None:
    """Goal: they give the same bytes, end at the same value, and hold what Arrow wants."""
    for bound in (cells_max, ALL_CELLS):
        found, twin = (
            decode(each, shape, values, cells_max=bound, is_strict=is_strict) for each in (compiled, python_twin)
        )
        assert found == twin
    json_array(found[0], arrow_type(shape)).validate(full=True)


@st.composite
def nearly_a_text_for_something(draw: st.DrawFn) -> bytes:
    """A date, a time or a decimal, mostly whole, with a character changed now and then."""
    day = draw(st.dates()).isoformat()
    clock = draw(st.times()).isoformat()
    zone = draw(st.sampled_from(["Z", "+00:00", "-12:30", "+23:59", "+24:00", "+01:60", "", "z"]))
    number = draw(st.decimals(allow_nan=False, allow_infinity=False, places=draw(st.integers(0, 4))))
    chosen = draw(st.sampled_from([day, f"{day}T{clock}{zone}", f"{day} {clock}{zone}", str(number)]))
    data = bytearray(chosen.encode())
    if draw(st.integers(0, 3)) == 0:
        data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from(b"0129:-.TZ+ eE"))
    return bytes(data)


@needs_compiled
@settings(max_examples=examples(80), deadline=None)
@given(nearly_a_text_for_something(), st.integers(1, 38), st.data())
def test_both_read_alike_what_texts_stand_for(text: bytes, precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    shape = struct_of(
        d=Shape(JsonKind.DATE), t=Shape(JsonKind.TIMESTAMP), p=Shape(JsonKind.DECIMAL, precision=precision, scale=scale)
    )
    values: list[bytes | None] = [b'{"%s": "%s"}' % (name, text) for name in (b"d", b"t", b"p")]
    values.append(b'{"p": %s}' % text)
    assert decode(compiled, shape, values) == decode(python_twin, shape, values)


@settings(max_examples=examples(60), deadline=None)
@given(OBJECTS, st.booleans(), st.none() | st.just(2))
def test_what_comes_out_is_what_the_standard_library_reads(given_object: Any, ascii_only: bool, indent: int) -> None:
    text = json.dumps(given_object, ensure_ascii=ascii_only, indent=indent).encode(errors="surrogatepass")
    kinds = {bool: BOOLEAN, str: STRING, float: DOUBLE}
    fields = {name: kinds[type(value)] for name, value in given_object.items() if type(value) in kinds}
    shape = struct_of(**fields, more=LONG)
    expected = {name: given_object[name] for name in fields} | {"more": None}
    for decoder in filter(None, (compiled, python_twin)):
        assert rows(decoder, shape, [text]) == [expected]


def test_the_compiled_decoder_is_used_where_it_is_built() -> None:
    expected = "python" if json_decoder.PURE or compiled is None else "cython"
    assert expected == json_decoder.IMPLEMENTATION
