"""Our authorizer decides as Kafka's StandardAuthorizer does: thousands of random entries and questions, no difference.

Names are of two letters, so that prefixes meet; `REPLOG_SEED` draws other ones, `REPLOG_EXAMPLES` more.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from kafka_install import KafkaInstall

from replog.access.entries import ANY_HOST, AclEntry, AclOperation, PatternType, Permission, ResourceKind
from replog.access.principal import Principal
from replog.access.standard import StandardAuthorizer
from replog.errors import BrokerNotAvailableError
from tests.random_examples import seeds

AUTHORIZERS: Final = 40
ENTRIES_MAX: Final = 25
QUESTIONS: Final = 150

USERS: Final = ("alice", "bob", "root", "carol", "CN=a,O=b")
"""None is named `*`: Kafka breaks on one (`Set.of` with the same principal twice)."""

HOSTS: Final = ("10.0.0.1", "10.0.0.2", "::1", "::ffff:10.0.0.1")
KINDS: Final = tuple(kind for kind in ResourceKind if kind is not ResourceKind.ANY)
OPERATIONS: Final = tuple(each for each in AclOperation if each > AclOperation.ALL)


class Side:
    """One authorizer of ours, and the lines that make and ask the same one of Kafka's.

    Attributes:
        lines: The lines.
        answers: Our answers, in order.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        allows_unlisted = rng.random() < 0.3
        super_users = rng.choice(("", "User:root", " User:root ; User:CN=a,O=b"))
        self._ours = StandardAuthorizer(
            filter(None, map(str.strip, super_users.split(";"))), allows_unlisted=allows_unlisted
        )
        self.lines = [f"new\t{str(allows_unlisted).lower()}\t{super_users}"]
        self.answers: list[str] = []

    def load(self) -> None:
        """Gives both the same entries, ours in two changes of which the second takes some away again."""
        entries = sorted({self._entry() for _ in range(self._rng.randrange(ENTRIES_MAX))})
        others = sorted({self._entry() for _ in range(5)}.difference(entries))
        self._ours.update((), [*entries[::2], *others])
        self._ours.update(others, entries[1::2])
        for one in entries:
            values = (getattr(one, name) for name in one.__struct_fields__)
            self.lines.append("\t".join(["entry", *(str(int(v) if isinstance(v, int) else v) for v in values)]))
        self.lines.append("loaded")

    def ask(self) -> None:
        """Asks both the same."""
        rng = self._rng
        user, host, kind, operation = (
            rng.choice(USERS),
            rng.choice(HOSTS),
            rng.choice(KINDS[:3]),
            rng.choice(OPERATIONS),
        )
        words = f"{user}\t{host}\t{int(operation)}\t{int(kind)}"
        try:
            if rng.random() < 0.2:
                self.lines.append(f"any\t{words}")
                is_allowed = self._ours.allows_any(Principal(user), host, operation, kind)
            else:
                name = self._name() if rng.random() < 0.95 else "hardcode"
                self.lines.append(f"allows\t{words}\t{name}")
                is_allowed = self._ours.allows(Principal(user), host, operation, kind, name)
            self.answers.append("yes" if is_allowed else "no")
        except BrokerNotAvailableError:
            self.answers.append("unready")

    def _entry(self) -> AclEntry:
        rng = self._rng
        return AclEntry(
            rng.choice(KINDS[:3]),
            rng.choice(("*", "hardcode", self._name(), self._name(), self._name())),
            rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            rng.choice(("User:alice", "User:bob", "User:*", "Group:alice", "User:CN=a,O=b", "User:")),
            rng.choice((ANY_HOST, ANY_HOST, "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")),
            rng.choice((AclOperation.ALL, *OPERATIONS)),
            rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
        )

    def _name(self) -> str:
        return "".join(self._rng.choice("ab") for _ in range(self._rng.randrange(1, 5)))


def test_no_decision_differs_from_kafkas(kafka: KafkaInstall, tmp_path: Path) -> None:
    for seed in seeds(1):
        rng = random.Random(seed)
        lines: list[str] = []
        ours: list[str] = []
        for _ in range(AUTHORIZERS):
            side = Side(rng)
            for _ in range(3):
                side.ask()
            side.load()
            for _ in range(QUESTIONS):
                side.ask()
            lines += side.lines
            ours += side.answers
        path = tmp_path / "questions"
        path.write_text("\n".join(lines), encoding="utf-8")
        theirs = kafka.run("AclDecisions", str(path)).output.split()
        asked = [line for line in lines if line.startswith(("allows", "any"))]
        differences = [each for each in zip(asked, ours, theirs, strict=True) if each[1] != each[2]]
        assert differences == [], f"seed {seed}: {differences[:5]}"
        assert min(ours.count("yes"), ours.count("no")) > len(ours) // 10
        assert "unready" in ours
