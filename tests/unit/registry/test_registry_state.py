"""The state of a registry by its log: which of several changes counts, and what then is there."""

from __future__ import annotations

import pytest

from replog.errors import UnsupportedVersionError
from replog.registry.model import (
    NO_CONFIG,
    AddVersion,
    Change,
    CompatibilityLevel,
    DeleteVersions,
    RegistryRefusedError,
    SchemaContent,
    SchemaKind,
    SchemaReference,
    SetConfig,
    SubjectConfig,
    subject_in,
)
from replog.registry.records import FORMAT, LoggedChange, decode_change, encode_change
from replog.registry.state import LATEST, RegistryState


def content(text: str, *references: SchemaReference) -> SchemaContent:
    return SchemaContent(SchemaKind.AVRO, text, references)


def replayed(*changes: tuple[int, Change]) -> tuple[RegistryState, list[bool]]:
    """The state after changes with their revisions, each through its record; and which of them counted."""
    state, counted = RegistryState(), []
    for revision, change in changes:
        logged = decode_change(encode_change(revision, change))
        assert logged is not None
        counted.append(state.apply(logged))
    return state, counted


def test_of_two_servers_that_register_at_once_the_first_in_the_log_wins() -> None:
    first, second = (AddVersion("s", 1, 1, content(text)) for text in ("a", "b"))
    state, counted = replayed((1, first), (1, second), (1, first), (2, AddVersion("s", 2, 2, content("b"))))
    assert counted == [True, False, False, True]
    assert [(each.version, each.id, each.content.text) for each in state.versions("s")] == [(1, 1, "a"), (2, 2, "b")]
    assert state.id_of(".", content("b")) == 2


def test_an_id_is_never_given_again_and_a_soft_deletion_keeps_it() -> None:
    added = AddVersion("s", 1, 1, content("a"))
    soft, hard = (DeleteVersions("s", (1,), permanent) for permanent in (False, True))
    state, _ = replayed((1, added), (2, soft))
    assert (state.subjects(), state.subjects(deleted=True), state.content(".", 1).text) == ([], ["s"], "a")
    assert state.version("s", LATEST, deleted=True).deleted
    state, _ = replayed((1, added), (2, soft), (3, hard), (4, hard))
    assert (state.subjects(deleted=True), state.last_id("."), state.schema_bytes, state.id_of(".", content("a"))) == (
        [],
        1,
        0,
        None,
    )
    with pytest.raises(RegistryRefusedError, match="Schema 1 not found"):
        state.content(".", 1)


def test_what_a_schema_refers_to_comes_before_it_once() -> None:
    a = content("a")
    b = content("b", SchemaReference("a", "sa", 1))
    c = content("c", SchemaReference("b", "sb", 1), SchemaReference("a", "sa", 1))
    state, _ = replayed(
        *enumerate((AddVersion(f"s{each.text}", 1, 1 + n, each) for n, each in enumerate((a, b, c))), 1)
    )
    assert [name for name, _ in state.closure(".", c)] == ["a", "b"]
    assert [each.subject for each in state.referrers("sa", 1)] == ["sb", "sc"]


def test_a_level_that_is_taken_back_is_that_of_all_others() -> None:
    full = CompatibilityLevel.FULL
    state, _ = replayed(
        (1, SetConfig("s", SubjectConfig(full))),
        (2, SetConfig(None, SubjectConfig(CompatibilityLevel.NONE))),
        (3, SetConfig("s", NO_CONFIG)),
    )
    assert (state.config("s"), state.level_for("s")) == (NO_CONFIG, "NONE")


def test_a_change_in_the_log_is_read_as_it_was_written() -> None:
    owned = SchemaContent(SchemaKind.AVRO, "a", metadata='{"properties":{"owner":"me"}}')
    for change in (AddVersion("s", 1, 1, owned), SetConfig("s", SubjectConfig(compatibility_group="major"))):
        assert decode_change(encode_change(1, change)) == LoggedChange(FORMAT, 1, change)


def test_schemas_with_other_metadata_have_other_ids_and_guids() -> None:
    plain, owned = content("a"), SchemaContent(SchemaKind.AVRO, "a", metadata='{"properties":{"owner":"me"}}')
    state, _ = replayed(
        *enumerate((AddVersion("s", 1, 1, plain), AddVersion("s", 2, 2, owned), AddVersion(":.c:s", 1, 1, owned)), 1)
    )
    assert [state.id_of(".", each) for each in (plain, owned)] == [1, 2]
    assert [state.place(each.guid) for each in (plain, owned)] == [(".", 1), (".", 2)]
    for revision, permanent in ((4, False), (5, True)):
        state.apply(LoggedChange(2, revision, DeleteVersions("s", (2,), permanent)))
    assert (state.place(owned.guid), state.schema_bytes) == ((".c", 1), 1 + owned.size)
    with pytest.raises(RegistryRefusedError, match="not found"):
        state.place("7")


def test_contexts_have_ids_levels_and_subjects_of_their_own() -> None:
    a, b = content("a"), content("b", SchemaReference("a", "s", 1))
    here, there = AddVersion("s", 1, 1, content("x")), AddVersion(":.c:s", 1, 1, a)
    using, level = AddVersion(":.c:t", 1, 2, b), SetConfig(":.c:", SubjectConfig(CompatibilityLevel.NONE))
    state, _ = replayed((1, here), (2, there), (3, using), (4, level))
    assert [state.content(context, 1).text for context in (".", ".c")] == ["x", "a"]
    assert [state.last_id(context) for context in (".", ".c", ".other")] == [1, 2, 0]
    assert [state.id_of(context, a) for context in (".", ".c")] == [None, 1]
    assert ([each.text for _, each in state.closure(".c", b)], [each.text for _, each in state.closure(".", b)]) == (
        ["a"],
        ["x"],
    )
    assert [each.subject for each in state.referrers(":.c:s", 1)] == [":.c:t"]
    assert state.referrers("s", 1) == []
    assert [state.level_for(subject) for subject in (":.c:s", "s", None)] == ["NONE", "BACKWARD", "BACKWARD"]
    state, _ = replayed((1, here), (2, there), (3, DeleteVersions("s", (1,), permanent=True)))
    assert (state.has_id(".", 1), state.has_id(".c", 1), state.schema_bytes) == (False, True, 1)


@pytest.mark.parametrize(
    ("context", "given", "kept"),
    [
        (".", "s", "s"),
        (".", ":.:s", "s"),
        (".", ":.c:s", ":.c:s"),
        (".c", "s", ":.c:s"),
        (".c", ":.d:s:t", ":.d:s:t"),
        (".c", ":.:s", "s"),
        (".", ":.c", ":.c:"),
        (".", ":.:", ""),
        (".", ":c:s", ":c:s"),
    ],
)
def test_a_subject_is_kept_by_one_name(context: str, given: str, kept: str) -> None:
    assert subject_in(context, given) == kept == subject_in(".", kept)


def test_records_of_others_are_left_out_and_those_of_a_newer_server_are_not() -> None:
    assert [decode_change(each) for each in (b"", b"\xff", b"7", b'{"format":1}')] == [None] * 4
    with pytest.raises(UnsupportedVersionError, match="format 2"):
        decode_change(b'{"format":2,"revision":1}')
