"""Tests for the decision by access control lists: what each rule of it is for, and that the index decides as a plain walk does."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import product
from unittest.mock import patch

import pytest

from replog.access import acl_index
from replog.access.acl_index import NOTHING, AclTable, PrefixRanges
from replog.access.entries import (
    ANY_HOST,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    entry_problem,
)
from replog.access.principal import Principal
from replog.access.standard import CACHED_MAX, AclDecision, AclQuestion, Reason, StandardAuthorizer, decide
from replog.errors import BrokerNotAvailableError
from tests.random_examples import seeds
from tests.work_counts import instructions_of

ALICE, BOB = Principal("alice"), Principal("bob")
HOST = "10.0.0.1"
TOPIC = ResourceKind.TOPIC


def entry(
    name: str = "flights",
    operation: AclOperation = AclOperation.READ,
    *,
    principal: str = "User:alice",
    pattern: PatternType = PatternType.LITERAL,
    host: str = ANY_HOST,
    permission: Permission = Permission.ALLOW,
    kind: ResourceKind = TOPIC,
) -> AclEntry:
    return AclEntry(kind, name, pattern, principal, host, operation, permission)


def authorizer(
    *entries: AclEntry, super_users: tuple[str, ...] = (), allows_unlisted: bool = False
) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users, allows_unlisted=allows_unlisted)
    made.update((), entries)
    return made


def reads(made: StandardAuthorizer, name: str = "flights", principal: Principal = ALICE, host: str = HOST) -> bool:
    return made.allows(principal, host, AclOperation.READ, TOPIC, name)


def test_nobody_may_do_anything_without_an_entry() -> None:
    made = authorizer()
    assert not reads(made)
    assert made.denials_count == 1
    assert reads(authorizer(allows_unlisted=True))


def test_an_entry_that_denies_goes_before_all_that_allow() -> None:
    allowed = entry()
    for denied in (
        entry(permission=Permission.DENY),
        entry("fl", pattern=PatternType.PREFIXED, permission=Permission.DENY),
        entry("*", permission=Permission.DENY),
        entry(principal="User:*", operation=AclOperation.ALL, permission=Permission.DENY),
    ):
        assert not reads(authorizer(allowed, denied))
        assert reads(authorizer(allowed, denied), "other") is False


def test_a_prefix_fits_names_that_begin_with_it() -> None:
    made = authorizer(entry("fli", pattern=PatternType.PREFIXED), entry("flock", pattern=PatternType.PREFIXED))
    assert [name for name in ("fli", "flights", "flo", "flocks", "f", "gli") if reads(made, name)] == [
        "fli",
        "flights",
        "flocks",
    ]


def test_all_prefixes_of_a_name_count_not_only_the_longest() -> None:
    longer = entry("fli", AclOperation.WRITE, pattern=PatternType.PREFIXED)
    made = authorizer(entry("f", pattern=PatternType.PREFIXED), longer, entry("flz", pattern=PatternType.PREFIXED))
    assert reads(made)
    assert made.allows(ALICE, HOST, AclOperation.WRITE, TOPIC, "flights")


def test_a_star_is_every_name_only_in_a_literal_entry() -> None:
    assert reads(authorizer(entry("*")), "anything")
    assert not reads(authorizer(entry("*", pattern=PatternType.PREFIXED)), "anything")


def test_an_entry_holds_for_its_host() -> None:
    made = authorizer(entry(host=HOST))
    assert reads(made)
    assert not reads(made, host="10.0.0.2")


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1"])
def test_an_ipv6_address_is_one_however_it_is_written(written: str) -> None:
    assert reads(authorizer(entry(host=written)), host="::1")
    assert reads(authorizer(entry(host="10.0.0.1")), host="::ffff:10.0.0.1")


def test_everybody_is_an_entry_for_all_users() -> None:
    assert reads(authorizer(entry(principal="User:*")), principal=BOB)
    assert not reads(authorizer(entry()), principal=BOB)


def test_what_allows_more_implies_to_describe_and_what_denies_does_not() -> None:
    for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER):
        assert authorizer(entry(operation=operation)).allows(ALICE, HOST, AclOperation.DESCRIBE, TOPIC, "flights")
    assert authorizer(entry(operation=AclOperation.ALTER_CONFIGS)).allows(
        ALICE, HOST, AclOperation.DESCRIBE_CONFIGS, TOPIC, "flights"
    )
    both = authorizer(entry(operation=AclOperation.DESCRIBE), entry(permission=Permission.DENY))
    assert both.allows(ALICE, HOST, AclOperation.DESCRIBE, TOPIC, "flights")


def test_before_the_entries_are_known_only_super_users_are_served() -> None:
    made = StandardAuthorizer(["User:bob"])
    assert reads(made, principal=BOB)
    with pytest.raises(BrokerNotAvailableError, match="ask again"):
        reads(made)
    with pytest.raises(BrokerNotAvailableError, match="ask again"):
        made.allows_any(ALICE, HOST, AclOperation.WRITE, TOPIC)
    made.update((), ())
    assert not reads(made)


def test_a_change_is_in_force_at_once_although_answers_are_remembered() -> None:
    made = authorizer(entry())
    assert reads(made)
    made.update([entry()], [entry(principal="User:bob")])
    assert not reads(made)
    assert reads(made, principal=BOB)
    assert made.entries_count == 1


def test_what_is_remembered_is_bounded() -> None:
    made = authorizer(entry("", pattern=PatternType.PREFIXED))
    for number in range(CACHED_MAX + 5):
        assert reads(made, f"topic-{number}")
    assert len(made._cache) == 5
    assert reads(made, "long" * 100)
    assert len(made._cache) == 5


def test_some_topic_may_be_written_unless_what_allows_it_is_denied_as_a_whole() -> None:
    def writes(*entries: AclEntry) -> bool:
        return authorizer(*entries).allows_any(ALICE, HOST, AclOperation.WRITE, TOPIC)

    allowed = entry("flights", AclOperation.WRITE)
    denied = entry("fl", AclOperation.WRITE, pattern=PatternType.PREFIXED, permission=Permission.DENY)
    assert writes(allowed)
    assert not writes()
    assert not writes(entry("flights", AclOperation.READ))
    assert not writes(allowed, denied)
    assert writes(allowed, denied, entry("*", AclOperation.WRITE))
    assert not writes(allowed, entry("*", AclOperation.ALL, permission=Permission.DENY))


def test_the_reason_names_the_entry_that_decided() -> None:
    denied = entry("fl", pattern=PatternType.PREFIXED, permission=Permission.DENY)
    question = AclQuestion(ALICE, HOST, AclOperation.READ, TOPIC, "flights")
    assert decide([entry(), denied], question) == AclDecision(is_allowed=False, reason=Reason.ENTRY, entry=denied)
    assert decide([entry()], question) == AclDecision(is_allowed=True, reason=Reason.ENTRY, entry=entry())
    assert decide([entry(principal="User:bob")], question) == AclDecision(is_allowed=False, reason=Reason.NO_ENTRY)
    assert decide([], question, allows_unlisted=True) == AclDecision(is_allowed=True, reason=Reason.UNLISTED)
    assert decide([], question, ["User:alice"]) == AclDecision(is_allowed=True, reason=Reason.SUPER_USER)


def random_entry(rng: random.Random) -> AclEntry:
    return AclEntry(
        rng.choice((TOPIC, ResourceKind.GROUP)),
        rng.choice(("*", "a", "b", "ab", "aa", "aab", "aba", "ba")),
        rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        rng.choice(("User:alice", "User:bob", "User:*", "Group:alice")),
        rng.choice((ANY_HOST, HOST, "10.0.0.2")),
        rng.choice([each for each in AclOperation if each is not AclOperation.ANY][:8]),
        rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


@pytest.mark.parametrize("seed", seeds(30))
def test_the_index_decides_as_a_walk_over_all_entries_does(seed: int) -> None:
    rng = random.Random(seed)
    allows_unlisted = rng.random() < 0.5
    made = authorizer(allows_unlisted=allows_unlisted)
    entries: set[AclEntry] = set()
    for _ in range(6):
        gone = {each for each in entries if rng.random() < 0.3}
        new = {random_entry(rng) for _ in range(rng.randrange(8))} - entries
        entries = entries - gone | new
        made.update(sorted(gone), sorted(new))
        for principal, host, name, kind in product(
            (ALICE, BOB), (HOST, "10.0.0.3"), ("a", "aab", "ab", "abab", "b", "*", "c"), (TOPIC, ResourceKind.GROUP)
        ):
            for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.WRITE):
                question = AclQuestion(principal, host, operation, kind, name)
                decision = decide(sorted(entries), question, allows_unlisted=allows_unlisted)
                assert made.allows(principal, host, operation, kind, name) is decision.is_allowed, (seed, question)
    assert made.entries_count == len(entries)


def test_a_table_that_loses_all_entries_is_gone() -> None:
    made = authorizer(entry(), entry("f", pattern=PatternType.PREFIXED), allows_unlisted=True)
    made.update([entry(), entry("f", pattern=PatternType.PREFIXED)], [])
    assert reads(made)
    assert AclTable({}, {}).bits((HOST,), "flights") == NOTHING


@pytest.mark.parametrize("other", ["a" * 240, "a" * 239 + "b", "a" * 3 + "!", "b"])
def test_a_decision_costs_the_same_however_many_prefixes_a_name_has(other: str) -> None:
    """With each prefix looked at, 240 of them took 7 times as many instructions as one."""
    one = authorizer(entry("a", pattern=PatternType.PREFIXED))
    many = authorizer(*(entry("a" * length, pattern=PatternType.PREFIXED) for length in range(1, 241)))
    for made in (one, many):
        reads(made, "first")  # it makes the index
    assert instructions_of(lambda: reads(many, other)) <= instructions_of(lambda: reads(one, other))


def test_thousands_of_entries_for_one_name_are_put_in_force_together() -> None:
    """With the hosts of the name copied for each, a broker's start took a second for 10,000 of them."""

    def put(count: int) -> int:
        hosts = [entry(host=f"10.0.{number // 256}.{number % 256}") for number in range(count)]
        return hosts_copied(lambda: authorizer(*hosts))

    assert put(500) == put(5)


def hosts_copied(work: Callable[[], object]) -> int:
    """How often the hosts of a pattern are made anew."""
    with patch.object(acl_index, "_hosts_after", wraps=acl_index._hosts_after) as made:
        work()
    return made.call_count


def test_prefixes_of_any_characters_hold_for_what_begins_with_them() -> None:
    last = chr(sys.maxunicode)
    prefixes = ["", "a", f"a{last}", f"a{last}{last}", last, f"{last}b", "az", "a{", "\ud7ff"]
    for some in ([], prefixes, prefixes[1:], prefixes[2:]):
        ranges = PrefixRanges({prefix: (1 << number, 0) for number, prefix in enumerate(some)})
        for name in {*prefixes, "a{b", "b", f"a{last}c", f"{last}{last}", "\ud800", "`", "ay"}:
            expected = sum(1 << number for number, prefix in enumerate(some) if name.startswith(prefix))
            assert ranges.bits(name) == (expected, 0), (some, name)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (entry(kind=ResourceKind.ANY), "kind of resource is ANY"),
        (entry(pattern=PatternType.MATCH), "pattern is MATCH"),
        (entry(operation=AclOperation.ANY), "operation is ANY"),
        (entry(permission=Permission.ANY), "permission is ANY"),
        (entry(""), "name of the resource is empty"),
        (entry("other", kind=ResourceKind.CLUSTER), "one resource of the kind CLUSTER"),
        (entry(principal="alice"), "is no principal"),
        (entry(host="h" * 2000), "at most 1024"),
    ],
)
def test_an_entry_that_cannot_be_one_is_refused_with_the_reason(wrong: AclEntry, problem: str) -> None:
    assert problem in (entry_problem(wrong) or "")
    assert entry_problem(entry()) is None


def test_a_filter_means_what_kafkas_patterns_mean() -> None:
    literal, prefix, star = entry("flights"), entry("fl", pattern=PatternType.PREFIXED), entry("*")
    entries = (literal, prefix, star, entry("other"))

    def found(name: str | None, pattern: PatternType) -> list[AclEntry]:
        return [each for each in entries if AclFilter(name=name, pattern=pattern).fits(each)]

    assert found("flights", PatternType.MATCH) == [literal, prefix, star]
    assert found("flights", PatternType.ANY) == [literal]
    assert found("fl", PatternType.PREFIXED) == [prefix]
    assert found(None, PatternType.LITERAL) == [literal, star, entry("other")]
    assert (
        AclFilter(
            TOPIC, "flights", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, Permission.ALLOW
        ).only_entry()
        == literal
    )
    assert AclFilter(name="flights").only_entry() is None
