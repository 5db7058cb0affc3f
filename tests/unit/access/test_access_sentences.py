"""Tests for entries and questions as sentences: what is shown is what is read, and nonsense is told what sense would be."""

from __future__ import annotations

import pytest

from replog.access.entries import AclOperation, PatternType, Permission, ResourceKind
from replog.access.principal import Principal
from replog.access.sentences import parse_entries, parse_question, sentence
from replog.access.standard import AclQuestion
from replog.errors import InvalidRequestError


@pytest.mark.parametrize(
    "text",
    [
        "User:alice may read topic flights",
        "User:alice may not all topic secret-*",
        "everybody may describe-configs topic *",
        "User:CN=ops of us,O=Example may alter cluster from 10.0.0.7",
        "User:a may write transactional-id pay from ::1",
        "Group:a may read group my group*",
        "User:a may create-tokens user User:b",
    ],
)
def test_what_is_shown_is_what_is_read(text: str) -> None:
    (entry,) = parse_entries(text)
    assert sentence(entry) == text


def test_a_sentence_may_be_several_entries_and_a_star_a_part_of_a_name() -> None:
    reads, writes = parse_entries("alice may not read,write topic flights*")
    assert (reads.operation, writes.operation) == (AclOperation.READ, AclOperation.WRITE)
    assert (reads.principal, reads.name, reads.pattern) == ("User:alice", "flights", PatternType.PREFIXED)
    assert reads.permission is Permission.DENY
    (literal,) = parse_entries("alice may read group odd*", is_literal=True)
    assert (literal.name, literal.pattern) == ("odd*", PatternType.LITERAL)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alice reads flights", "Say PRINCIPAL may"),
        ("alice may fly topic flights", '"fly" is nothing that is done to a topic; there is all, alter'),
        ("alice may write group g", "nothing that is done to a group"),
        ("alice may read topic", "names no topic"),
        ("alice may alter cluster other", "one resource of the kind CLUSTER"),
    ],
)
def test_nonsense_is_told_what_sense_would_be(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        parse_entries(text)


def test_a_question_is_about_one_user_and_one_operation() -> None:
    asked = AclQuestion(Principal("alice"), "::1", AclOperation.READ, ResourceKind.TOPIC, "flights")
    assert parse_question("may alice read topic flights from ::1?") == asked
    assert parse_question(" may User:alice read topic flights from ::1 ") == asked
    for text, problem in (
        ("may alice read,write topic flights?", "one operation"),
        ("alice may read topic flights", "is no question"),
        ("may everybody read topic flights?", "not one user"),
    ):
        with pytest.raises(InvalidRequestError, match=problem):
            parse_question(text)
