"""Entries of access control lists, and questions about them, as people say them.

alice may read,describe topic flights        User:alice, a literal name
everybody may not write topic secret-*       User:*, a prefix
User:CN=ops,O=Example may all cluster        the one resource of its kind needs no name
bob may read group * from 10.0.0.7           any name, from one host
may alice read topic flights from ::1?       a question
"""

from __future__ import annotations

import re
from typing import Final

from replog.access.entries import (
    ANY_HOST,
    ANY_NAME,
    ANY_USER,
    CLUSTER_NAME,
    OPERATIONS,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    entry_problem,
)
from replog.access.principal import Principal
from replog.access.standard import AclQuestion
from replog.errors import InvalidRequestError

EVERYBODY: Final = "everybody"
"""Stands for all principals."""

_KINDS: Final = {kind.name.lower().replace("_", "-"): kind for kind in OPERATIONS}
_WORDS: Final = {each.name.lower().replace("_", "-"): each for each in AclOperation if each is not AclOperation.ANY}
_KIND: Final = "|".join(_KINDS)
_WHAT: Final = rf"(?P<operations>[a-z,-]+) (?P<kind>{_KIND})(?: (?P<name>.+?))??(?: from (?P<host>\S+?))?"
_ENTRY: Final = re.compile(rf"(?P<who>.+?) may (?P<denies>not )?{_WHAT}")
_QUESTION: Final = re.compile(rf"may (?P<who>.+?) {_WHAT}\??")
_USER: Final = "User:"


def sentence(entry: AclEntry) -> str:
    """Returns an entry as `parse_entries` reads it."""
    may = "may" if entry.permission is Permission.ALLOW else "may not"
    who = EVERYBODY if entry.principal == ANY_USER else entry.principal
    where = "" if entry.host == ANY_HOST else f" from {entry.host}"
    name = "" if entry.kind is ResourceKind.CLUSTER else f" {entry.name}"
    behind = "*" if entry.pattern is PatternType.PREFIXED else ""
    return f"{who} {may} {_word(entry.operation)} {_word(entry.kind)}{name}{behind}{where}"


def parse_entries(text: str, *, is_literal: bool = False) -> tuple[AclEntry, ...]:
    """Returns the entries of a sentence, one for each operation.

    Args:
        text: The sentence.
        is_literal: Whether a `*` at the end of a longer name is a part of the name.

    Raises:
        InvalidRequestError: It is no such sentence, or says what no entry can; the message says what is.
    """
    found = _ENTRY.fullmatch(text.strip())
    if found is None:
        raise InvalidRequestError(
            f'"{text[:200]}" is no entry. Say PRINCIPAL may [not] OPERATION KIND NAME [from HOST], such as "alice may read topic '
            f'flights"; kinds are {", ".join(_KINDS)}'
        )
    kind, name = _KINDS[found["kind"]], _name(found)
    is_prefix = name.endswith("*") and name != ANY_NAME and not is_literal
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    permission = Permission.DENY if found["denies"] else Permission.ALLOW
    entries = tuple(
        AclEntry(
            kind,
            name[:-1] if is_prefix else name,
            pattern,
            _principal(found["who"]),
            found["host"] or ANY_HOST,
            operation,
            permission,
        )
        for operation in _operations(found["operations"], kind)
    )
    for problem in filter(None, map(entry_problem, entries)):
        raise InvalidRequestError(f'"{text[:200]}": {problem}')
    return entries


def parse_question(text: str) -> AclQuestion:
    """Returns what a question asks.

    Raises:
        InvalidRequestError: It is no question; the message says what is one.
    """
    found = _QUESTION.fullmatch(text.strip())
    operations = () if found is None else _operations(found["operations"], _KINDS[found["kind"]])
    if found is None or len(operations) != 1:
        raise InvalidRequestError(
            f'"{text[:200]}" is no question. Ask "may PRINCIPAL OPERATION KIND NAME [from HOST]?" about one operation, such as '
            '"may alice read topic flights?"'
        )
    user = _principal(found["who"])
    if not user.startswith(_USER) or user == ANY_USER:
        raise InvalidRequestError(f"{found['who'][:200]} is not one user; ask about a user by name")
    host = found["host"] or "127.0.0.1"
    return AclQuestion(Principal(user.removeprefix(_USER)), host, operations[0], _KINDS[found["kind"]], _name(found))


def _word(value: AclOperation | ResourceKind) -> str:
    return value.name.lower().replace("_", "-")


def _name(found: re.Match[str]) -> str:
    if _KINDS[found["kind"]] is ResourceKind.CLUSTER:
        return found["name"] or CLUSTER_NAME
    if not found["name"]:
        raise InvalidRequestError(f'"{found[0][:200]}" names no {found["kind"]}; write its name, or `*` for all')
    return found["name"]


def _principal(who: str) -> str:
    if who == EVERYBODY:
        return ANY_USER
    return who if re.match(r"[A-Za-z]+:", who) else f"{_USER}{who}"


def _operations(text: str, kind: ResourceKind) -> tuple[AclOperation, ...]:
    """Returns the operations with commas between them.

    Raises:
        InvalidRequestError: One is none on this kind of resource.
    """
    found: list[AclOperation] = []
    for word in text.split(","):
        operation = _WORDS.get(word)
        if operation is None or operation not in OPERATIONS[kind]:
            known = ", ".join(sorted(map(_word, OPERATIONS[kind])))
            raise InvalidRequestError(f'"{word}" is nothing that is done to a {_word(kind)}; there is {known}')
        found.append(operation)
    return tuple(found)
