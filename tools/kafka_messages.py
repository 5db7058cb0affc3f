"""Writes `replog/wire/messages/` and the records of `replog/coordinator` from the definitions in Kafka's own jars.

One module for each API of `APIS`: a class for the request and one for the answer, their structs nested in them, each
with `read` and `write` for every version that Kafka defines.  Fields of fixed width that follow one another are one call of
`struct`.  Those of the records of consumer groups and of transactions are written by `kafka_records`.  `--check` only compares.  The
jars come from Maven (`bench/java/kafka-pom.xml`); where they cannot be had, `--check` says so and passes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.systems.maven import PeerUnavailableError, jars  # noqa: E402
from tools.kafka_definitions import CODES, SIZES, Field, Message, Span, Struct, definitions, parse, snake_case  # noqa: E402
from tools.kafka_private_fields import add_private_fields  # noqa: E402
from tools.kafka_records import GROUP_RECORDS, TRANSACTION_RECORDS, record_modules  # noqa: E402

APIS = (
    *("Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "CreateTopics", "DeleteTopics", "DeleteRecords"),
    *("InitProducerId", "OffsetForLeaderEpoch", "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"),
    *("AlterReplicaLogDirs", "DescribeLogDirs", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments"),
    *("ListPartitionReassignments", "DescribeQuorum", "UpdateFeatures", "DescribeCluster", "DescribeProducers"),
    *("UnregisterBroker", "ListConfigResources", "DescribeTopicPartitions", "AddRaftVoter", "RemoveRaftVoter"),
    *("FindCoordinator", "OffsetCommit", "OffsetFetch", "OffsetDelete", "DeleteGroups", "ConsumerGroupHeartbeat"),
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "DescribeGroups", "ListGroups", "ConsumerGroupDescribe"),
    "WriteTxnMarkers",
    *("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"),
    *("DescribeTransactions", "ListTransactions"),
    *("DescribeAcls", "CreateAcls", "DeleteAcls"),
    *("SaslHandshake", "SaslAuthenticate", "DescribeUserScramCredentials", "AlterUserScramCredentials"),
    *("DescribeClientQuotas", "AlterClientQuotas"),
    *(f"{step}DelegationToken" for step in ("Create", "Renew", "Expire", "Describe")),
)
HEADERS = ("RequestHeader", "ResponseHeader")

# ---- code ------------------------------------------------------------------------------------------------------------


class Code:
    """The code of one message.

    Attributes:
        layouts: The letters of all the runs of fixed width that it has.
    """

    def __init__(self, message: Message) -> None:
        self._message = message
        self._name = message.root.name
        self.layouts: set[str] = set()
        self._structs = {each.name: each for each in (message.root, *message.structs)}
        self._reach = self._reaches()

    def lines(self) -> Iterator[str]:
        """Yields the class of the message, its structs nested in it.

        A message is a tree, which the garbage collector has nothing to look for in: ten thousand partitions would be a tenth of a
        second of each of its passes.
        """
        message = self._message
        yield f"class {self._name}(Struct, gc=False):"
        versions = f"versions {message.versions.first} to {message.versions.last}"
        key = f"API {message.api_key}, " if message.api_key is not None else ""
        yield f'    """Kafka\'s {self._name} ({key}{versions})."""'
        yield ""
        if message.api_key is not None:
            yield f"    API_KEY: ClassVar = {message.api_key}"
        yield f"    VERSIONS: ClassVar = range({message.versions.first}, {message.versions.last + 1})"
        yield f"    FLEXIBLE_FROM: ClassVar = {message.flexible.first}"
        yield ""
        for struct in message.structs:
            yield f"    class {struct.name}(Struct, gc=False):"
            yield from indented(self._members(struct, f"{self._name}.{struct.name}"), 2)
            yield ""
        yield from indented(self._members(message.root, self._name))

    def _reaches(self) -> dict[str, Span]:
        """Returns the versions in which each struct is used."""
        known: dict[str, Span] = {}
        reaches = {self._name: self._message.versions}
        while known != reaches:  # those that several structs share may stand anywhere
            known = dict(reaches)
            for outer in (self._message.root, *reversed(self._message.structs)):
                for each in outer.fields:
                    if each.is_struct and outer.name in reaches:
                        used, before = each.span.within(reaches[outer.name]), reaches.get(each.element)
                        if used:
                            reaches[each.element] = used if before is None else before.joined(used)
        return reaches

    def _members(self, struct: Struct, path: str) -> Iterator[str]:
        for each in struct.fields:
            yield f"{each.name}: {each.annotation(self._name)} = {each.default_text(self._name)}"
        reach = self._reach[struct.name]
        flexible = self._message.flexible.within(reach)
        for signature, body in (
            (f"def read(cls, r: Reader, version: int) -> {path}:", list(self._read(struct, reach))),
            ("def write(self, w: Writer, version: int) -> None:", list(self._write(struct, reach))),
        ):
            yield ""
            if signature.startswith("def read"):
                yield "@classmethod"
            yield signature
            if any(re.search(r"\bflexible\b", line) for line in body):
                yield f"    flexible = {flexible.condition(reach)}"
            yield from indented(body)

    def _runs(self, struct: Struct, reach: Span) -> Iterator[tuple[str, list[list[Field]]]]:
        """Yields the fields that are not tagged by the versions that they are in, cut where the width stops being fixed."""
        present = [each for each in struct.fields if each.tag is None and each.span.within(reach)]
        for condition, fields in groupby(present, lambda each: each.span.within(reach).condition(reach)):
            yield condition, [list(run) for _, run in groupby(fields, lambda each: bool(each.code))]

    def _tagged(self, struct: Struct, reach: Span) -> list[Field]:
        found = [each for each in struct.fields if each.tag is not None and each.tagged.within(reach)]
        return sorted(found, key=lambda each: each.tag or 0)

    def _by_nullness(self, each: Field, reach: Span, lines: Callable[[str], list[str]]) -> list[str]:
        """Returns the lines for versions where the field may be null, and for those where it may not.

        Args:
            each: The field.
            reach: The versions that its struct is used in.
            lines: The function that is given the prefix of the methods' names: "nullable_" or "".
        """
        alive = each.span.within(reach)
        nullable = each.nullable.within(alive)
        condition = nullable.condition(alive)
        if not nullable or not condition:
            return lines("nullable_" if nullable else "")
        return [f"if {condition}:", *indented(lines("nullable_")), "else:", *indented(lines(""))]

    def _flexible_of(self, each: Field, reach: Span) -> str:
        flexible = self._message.flexible.within(reach)
        if not each.is_flexible or not flexible:
            return "False"
        return "flexible" if flexible.condition(reach) else "True"

    def _layout(self, codes: str) -> str:
        self.layouts.add(codes)
        return layout_name(codes)

    def _least(self, kind: str) -> int:
        """Returns the size of the smallest value of a kind, in whichever version."""
        if kind in CODES:
            return SIZES[CODES[kind]]
        if not kind[0].isupper():
            return 16 if kind == "uuid" else 1
        reach = self._reach[kind]
        always = [each for each in self._structs[kind].fields if each.tag is None and not each.span.condition(reach)]
        return max(1, sum(1 if each.is_array or each.nullable else self._least(each.type) for each in always))

    # reading

    def _read(self, struct: Struct, reach: Span) -> Iterator[str]:
        yield "it = cls()"
        for condition, runs in self._runs(struct, reach):
            body = [line for run in runs for line in self._read_run(run, reach)]
            yield from guarded(condition, body)
        if flexible := self._message.flexible.within(reach):
            yield from guarded(flexible.condition(reach), self._read_tags(struct, reach, flexible))
        yield "return it"

    def _read_run(self, run: list[Field], reach: Span) -> list[str]:
        if run[0].code:
            codes = "".join(each.code for each in run)
            targets = ", ".join(f"it.{each.name}" for each in run)
            return [f"({targets}{',' if len(run) == 1 else ''}) = r.fixed({self._layout(codes)})"]
        return [line for each in run for line in self._read_value(each, reach, "r")]

    def _read_value(self, each: Field, reach: Span, reader: str) -> list[str]:
        flexible = self._flexible_of(each, reach)
        return self._by_nullness(
            each, reach, lambda prefix: [f"it.{each.name} = {self._reading(each, reader, flexible, prefix)}"]
        )

    def _reading(self, each: Field, reader: str, flexible: str, prefix: str) -> str:
        if each.is_array:
            head, count = "", f"{reader}.count({flexible}, {self._least(each.element)})"
            if prefix:
                asked = f"{reader}.nullable_count({flexible}, {self._least(each.element)})"
                head, count = f"None if (count := {asked}) is None else ", "count"
            if each.element in CODES:
                return f'{head}{reader}.numbers({count}, "{CODES[each.element]}")'
            return f"{head}[{self._reading_one(each.element, reader, flexible)} for _ in range({count})]"
        if each.is_struct and prefix:
            asked = "is_present" if each.tag is None else "is_present_in_tag"
            return f"{self._reading_one(each.element, reader, flexible)} if {reader}.{asked}() else None"
        if each.type == "records":
            return f"{reader}.nullable_view({flexible})"
        if each.type in {"string", "bytes"}:
            return f"{reader}.{prefix}{'text' if each.type == 'string' else 'raw'}({flexible})"
        return self._reading_one(each.type, reader, flexible)

    def _reading_one(self, kind: str, reader: str, flexible: str) -> str:
        if kind in CODES:
            return f"{reader}.fixed({self._layout(CODES[kind])})[0]"
        if kind[0].isupper():
            return f"{self._name}.{kind}.read({reader}, version)"
        return {
            "string": f"{reader}.text({flexible})",
            "bytes": f"{reader}.raw({flexible})",
            "uuid": f"{reader}.uuid()",
        }[kind]

    def _read_tags(self, struct: Struct, reach: Span, flexible: Span) -> list[str]:
        tagged = self._tagged(struct, reach)
        if not tagged:
            return ["r.tagged()"]
        lines = ["for tag, value in r.tagged():"]
        for number, each in enumerate(tagged):
            condition = each.tagged.condition(flexible)
            lines.append(
                f"    {'elif' if number else 'if'} tag == {each.tag}{f' and {condition}' if condition else ''}:"
            )
            lines += indented([*self._read_value(each, reach, "value"), "value.finish()"], 2)
        return lines

    # writing

    def _write(self, struct: Struct, reach: Span) -> Iterator[str]:
        for condition, runs in self._runs(struct, reach):
            yield from guarded(condition, [line for run in runs for line in self._write_run(run, reach)])
        if flexible := self._message.flexible.within(reach):
            yield from guarded(flexible.condition(reach), self._write_tags(struct, reach, flexible))
        elif not any(each.span.within(reach) for each in struct.fields):
            yield "pass"

    def _write_run(self, run: list[Field], reach: Span) -> list[str]:
        if run[0].code:
            codes = "".join(each.code for each in run)
            values = ", ".join(f"self.{each.name}" for each in run)
            return [f"w.fixed({self._layout(codes)}, {values})"]
        return [line for each in run for line in self._write_value(each, reach, "w")]

    def _write_value(self, each: Field, reach: Span, writer: str) -> list[str]:
        flexible = self._flexible_of(each, reach)
        return self._by_nullness(each, reach, lambda prefix: self._writing(each, writer, flexible, prefix))

    def _writing(self, each: Field, writer: str, flexible: str, prefix: str) -> list[str]:
        value = f"self.{each.name}"
        if each.is_array:
            values, one = f"{value} or ()" if each.may_be_none else value, f"each_{each.name}"
            head = f"{writer}.{prefix}count({value}, {flexible})"
            if each.element in CODES:
                return [head, f'{writer}.numbers({values}, "{CODES[each.element]}")']
            return [head, f"for {one} in {values}:", f"    {self._writing_one(each.element, one, writer, flexible)}"]
        if each.is_struct and prefix:
            said = f"{writer}.{'presence' if each.tag is None else 'presence_in_tag'}({value})"
            return [said, f"if {value} is not None:", f"    {value}.write({writer}, version)"]
        if each.type in {"string", "bytes", "records"}:
            return [f"{writer}.{prefix}{'text' if each.type == 'string' else 'raw'}({value}, {flexible})"]
        return [self._writing_one(each.type, value, writer, flexible)]

    def _writing_one(self, kind: str, value: str, writer: str, flexible: str) -> str:
        if kind in CODES:
            return f"{writer}.fixed({self._layout(CODES[kind])}, {value})"
        if kind[0].isupper():
            return f"{value}.write({writer}, version)"
        if kind == "uuid":
            return f"{writer}.uuid({value})"
        return f"{writer}.{'text' if kind == 'string' else 'raw'}({value}, {flexible})"

    def _write_tags(self, struct: Struct, reach: Span, flexible: Span) -> list[str]:
        tagged = self._tagged(struct, reach)
        if not tagged:
            return ["w.tagged()"]
        lines = ["tags: list[tuple[int, Writer]] = []"]
        for each in tagged:
            condition = each.tagged.condition(flexible)
            lines.append(f"if {f'{condition} and ' if condition else ''}{each.differs(self._name)}:")
            lines += indented(
                ["value = Writer()", *self._write_value(each, reach, "value"), f"tags.append(({each.tag}, value))"]
            )
        return [*lines, "w.tagged(tags)"]


def indented(lines: Iterable[str], levels: int = 1) -> list[str]:
    """Returns lines, further to the right."""
    return [f"{'    ' * levels}{line}" if line else "" for line in lines]


def guarded(condition: str, lines: list[str]) -> list[str]:
    """Returns lines that count where a condition holds; "" is one that always does."""
    return [f"if {condition}:", *indented(lines)] if condition else lines


def layout_name(codes: str) -> str:
    """Returns the name of a struct's layout."""
    return "_" + codes.replace("?", "o").replace("H", "uh").replace("I", "ui")


def module(names: tuple[str, ...], found: dict[str, Any]) -> str:
    """Returns the module of some messages."""
    codes_of = [Code(parse(found[name])) for name in names]
    body = "\n\n\n".join("\n".join(code.lines()) for code in codes_of)
    layouts = {codes for code in codes_of for codes in code.layouts}
    head = [
        '"""Generated by tools/kafka_messages.py from the definitions of Apache Kafka; not edited by hand."""',
        "",
    ]
    head += ["from __future__ import annotations", ""]
    head += ["import struct"] if layouts else []
    head += ["from typing import ClassVar"]
    head += ["from uuid import UUID"] if "UUID" in body else []
    head += ["", "from msgspec import Struct" + (", field" if "field(" in body else "")]
    head += ["", "from replog.wire.primitives import Reader, Writer", ""]
    head += [f'{layout_name(codes)} = struct.Struct(">{codes}")' for codes in sorted(layouts)]
    head += ["ZERO_UUID = UUID(int=0)"] if "ZERO_UUID" in body else []
    return "\n".join([*head, "", "", body, ""])


def message_modules(found: dict[str, Any]) -> dict[str, str]:
    """Returns the text of each module of requests and answers by its file's name."""
    add_private_fields(found)
    about = "The messages of Kafka's protocol, one module an API; generated by tools/kafka_messages.py."
    made = {"__init__.py": f'"""{about}"""\n', "headers.py": module(HEADERS, found)}
    for api in APIS:
        made[f"{snake_case(api)}.py"] = module((f"{api}Request", f"{api}Response"), found)
    return made | {"apis.py": table_of_apis(found)}


def table_of_apis(found: dict[str, Any]) -> str:
    """Returns the module that tells of each API what can be known without its messages."""
    rows = []
    for api in APIS:
        message = parse(found[f"{api}Request"])
        versions = f"range({message.versions.first}, {message.versions.last + 1})"
        rows.append(f'    "{snake_case(api)}": Api("{api}", {message.api_key}, {versions}, {message.flexible.first}),')
    return "\n".join(
        (
            '"""Generated by tools/kafka_messages.py from the definitions of Apache Kafka; not edited by hand."""',
            "",
            "from __future__ import annotations",
            "",
            "from collections.abc import Mapping",
            "from typing import Final",
            "",
            "from msgspec import Struct",
            "",
            "",
            "class Api(Struct, frozen=True):",
            '    """What there is to know of an API before one of its messages is read; `flexible_from`: the first version with tagged fields."""',
            "",
            "    name: str",
            "    key: int",
            "    versions: range",
            "    flexible_from: int",
            "",
            "",
            "APIS: Final[Mapping[str, Api]] = {",
            *rows,
            "}",
            "",
        )
    )


@dataclass(frozen=True)
class Package:
    """A package that is generated.

    Attributes:
        path: Its folder, as seen from the root.
        jar: How the name of the jar with the definitions begins.
        modules: The function that makes the text of its modules from the definitions, by the names of their files.
    """

    path: str
    jar: str
    modules: Callable[[dict[str, Any]], dict[str, str]]

    def files(self) -> dict[str, str]:
        """Returns the text of each file by its name.  Raises: PeerUnavailableError: The jar cannot be had."""
        jar = next(each for each in jars("kafka") if each.name.startswith(self.jar) and "test" not in each.name)
        return {name: formatted(text) for name, text in self.modules(definitions(jar)).items()}

    def replace(self, made: dict[str, str]) -> None:
        """Puts the new files in place of the old ones."""
        folder = ROOT / self.path
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.py"):
            old.unlink()
        for name, text in made.items():
            (folder / name).write_text(text)

    def stale(self, made: dict[str, str]) -> list[str]:
        """Returns the files that differ, are missing, or are left over."""
        there = {each.name: each.read_text() for each in (ROOT / self.path).glob("*.py")}
        return sorted(f"{self.path}/{name}" for name in made.keys() | there.keys() if made.get(name) != there.get(name))


PACKAGES = (
    Package(
        path="replog/wire/messages",
        jar="kafka-clients-",
        modules=message_modules,
    ),
    Package(
        path="replog/coordinator/messages",
        jar="kafka-group-coordinator-4",
        modules=partial(record_modules, GROUP_RECORDS, "consumer groups"),
    ),
    Package(
        path="replog/coordinator/transactions/messages",
        jar="kafka-transaction-coordinator-4",
        modules=partial(record_modules, TRANSACTION_RECORDS, "transactions"),
    ),
)


def formatted(text: str) -> str:
    """Returns the text as the project's formatter writes it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "generated.py", "-"]
    return subprocess.run(command, input=text, capture_output=True, check=True, text=True, cwd=ROOT).stdout


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 where a check finds a difference."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python tools/kafka_messages.py [--check]\n")
        return 2
    try:
        made = [(package, package.files()) for package in PACKAGES]
    except PeerUnavailableError as error:
        sys.stderr.write(f"not compared with Kafka's definitions: {error}\n")
        return 0 if arguments else 1
    if not arguments:
        for package, files in made:
            package.replace(files)
        return 0
    stale = [path for package, files in made for path in package.stale(files)]
    for path in stale:
        sys.stderr.write(f"{path} is not what Kafka's definitions give: run tools/kafka_messages.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
