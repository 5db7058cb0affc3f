"""Names and records of writes that are there once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the extra replog[spark] is not installed")

from replog.errors import InvalidRecordError, RecordTooLargeError
from replog.spark.sink.once.decisions import (
    GIVEN_UP_MAX,
    Decision,
    Prepared,
    WriterStanding,
    decode,
    decode_given_up,
    encode,
    encode_given_up,
    partition_of,
)
from replog.spark.sink.once.names import (
    AttemptName,
    Version,
    application_writer,
    attempt_of,
    attempts_pattern,
    driver_id,
    new_run,
    query_writer,
    single_writer,
)

RUN = "0123456789abcdef" * 2
INT64 = st.integers(0, 2**63 - 1)
NAMES = st.text("abcXYZ019._:-", min_size=1, max_size=20)
WRITERS = st.sampled_from([query_writer, application_writer, single_writer]).flatmap(NAMES.map)
VERSIONS = st.builds(Version, WRITERS, INT64)
ATTEMPTS = st.lists(st.builds(Prepared, INT64, INT64, st.integers(0, 2**15 - 1)), max_size=5).map(tuple)


@given(st.builds(Decision, VERSIONS, st.just(RUN), ATTEMPTS | st.none()))
def test_a_decision_is_read_as_it_was_written(decision: Decision) -> None:
    key, value = encode(decision)
    assert decode(key, value) == decision
    assert key.decode() == decision.version.writer
    assert 0 <= partition_of(decision.version.writer) < 4


def test_the_bytes_of_a_decision_stay_as_they_are() -> None:
    """Another replog, of another day, has to read them."""
    decision = Decision(Version("app:etl", 7), RUN, (Prepared(5, 4001, 0), Prepared(6, 4002, 3)))
    key, value = b"app:etl", b'{"format":1,"version":7,"run":"%s","attempts":[[5,4001,0],[6,4002,3]]}' % RUN.encode()
    assert encode(decision) == (key, value)
    assert encode(decision.done()) == (key, value.replace(b"[[5,4001,0],[6,4002,3]]", b"null"))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{}", "is no decision"),
        (b"\xff", "is no decision"),
        (b'{"format":1,"version":7}', "is no decision"),
        (b'{"format":2,"votes":[]}', "use the newer version of replog"),
    ],
)
def test_what_is_no_decision_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        decode(b"app:etl", value)
    with pytest.raises(InvalidRecordError, match=reason):
        decode_given_up(value)


def test_a_key_that_is_no_text_is_no_decision() -> None:
    _, value = encode(Decision(Version("app:etl", 7), RUN, None))
    with pytest.raises(InvalidRecordError, match="is no decision"):
        decode(b"\xff", value)


def test_what_is_given_up_is_known_until_its_version_is_decided() -> None:
    standing = WriterStanding(Decision(Version("app:etl", 7), RUN, None), ((7, "a"), (8, "b")))
    given_up = standing.giving_up({(8, "c"), (9, "a")})
    assert given_up == ((8, "b"), (8, "c"), (9, "a"))
    assert encode_given_up(given_up) == b'{"format":1,"runs":[[8,"b"],[8,"c"],[9,"a"]]}'
    assert decode_given_up(encode_given_up(given_up)) == given_up
    many = standing.giving_up({(8, f"{number:04}") for number in range(GIVEN_UP_MAX)})
    assert (len(many), many[-1]) == (GIVEN_UP_MAX, (8, f"{GIVEN_UP_MAX - 1:04}"))


def test_a_decision_has_a_bound() -> None:
    attempts = tuple(Prepared(2**40 + number, 2**40, 0) for number in range(50_000))
    with pytest.raises(RecordTooLargeError, match="write with fewer tasks"):
        encode(Decision(Version("app:etl", 7), RUN, attempts))


@given(st.builds(AttemptName, VERSIONS, st.just(RUN), INT64))
def test_an_attempt_is_known_by_its_transactional_id(name: AttemptName) -> None:
    tid = name.transactional_id
    assert attempt_of(tid) == name
    assert re.fullmatch(attempts_pattern(name.version.writer), tid)
    assert attempt_of(driver_id(name.version.writer)) is None
    assert not re.fullmatch(attempts_pattern(name.version.writer), driver_id(name.version.writer))


@pytest.mark.parametrize(
    "tid",
    ["", "spark/app:a", f"spark/app:a/1/{RUN}", f"spark/app:a/x/{RUN}/1", f"other/app:a/1/{RUN}/1", "spark/a/1/r/1"],
)
def test_other_transactional_ids_are_of_no_attempt(tid: str) -> None:
    assert attempt_of(tid) is None


def test_no_two_plans_have_one_run() -> None:
    assert len({new_run() for _ in range(100)}) == 100
