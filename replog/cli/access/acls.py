"""`replog acls`: who may do what, in sentences, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.cli.errors import UsageError

if TYPE_CHECKING:
    from replog.access.entries import AclEntry, AclFilter
    from replog.access.standard import AclDecision, AclQuestion

app = typer.Typer(help="List, add and remove entries of access control lists, and ask why.", no_args_is_help=True)

DENIED = 1
"""The status of a test whose answer is no."""

Sentences = Annotated[
    list[str],
    typer.Argument(
        metavar="SENTENCE...",
        help='PRINCIPAL may [not] OPERATION KIND NAME [from HOST], such as "alice may read,write topic flights*".',
    ),
]
Literal = Annotated[bool, typer.Option("--literal", help="A * at the end of a longer name is a part of the name.")]
OfPrincipal = Annotated[str | None, typer.Option("--principal", metavar="TYPE:NAME", help="Only of this principal.")]
Concerning = Annotated[
    str | None,
    typer.Option(
        "--concerning", metavar="NAME", help="Only what concerns resources of this name: prefixes and *, too."
    ),
]


@app.command("list")
def list_acls(
    principal: OfPrincipal = None,
    concerning: Concerning = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the entries, each as a sentence that `add` and `remove` take."""
    meant = _filter(principal, concerning)
    _show(common.ask(bootstrap_servers, lambda admin: admin.describe_acls(meant)), as_json=as_json)


@app.command("add")
def add(
    sentences: Sentences,
    is_literal: Literal = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Add entries; those that are there already stay as they are."""
    entries = _entries(sentences, is_literal=is_literal)

    common.ask(bootstrap_servers, lambda admin: admin.create_acls(entries), "asking the controller")
    _show(entries, as_json=False)


@app.command("remove")
def remove(
    sentences: Annotated[
        list[str] | None, typer.Argument(metavar="SENTENCE...", help="Entries, as `list` shows them.")
    ] = None,
    is_literal: Literal = False,
    principal: OfPrincipal = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Remove entries by their sentences, or all entries of a principal, and show what is gone."""
    from replog.access.entries import AclFilter

    if bool(sentences) is (principal is not None):
        reason = "say which entries go: sentences as `list` shows them, or --principal for all of one"
        raise UsageError("--principal", principal, reason)
    filters = [_filter(principal, None)]
    if sentences:
        entries = _entries(sentences, is_literal=is_literal)
        filters = [AclFilter(**{name: getattr(one, name) for name in one.__struct_fields__}) for one in entries]

    _show(
        common.ask(bootstrap_servers, lambda admin: admin.delete_acls(filters), "asking the controller"), as_json=False
    )


@app.command("test")
def ask(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help='Such as "may alice read topic flights from 10.0.0.1?".')
    ],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Say whether somebody may do something, and which entry says so; the status is 1 where the answer is no."""
    from replog.access.sentences import parse_question, sentence

    asked = parse_question(question)
    decision = common.run(_decision(bootstrap_servers, asked))
    entry = None if decision.entry is None else sentence(decision.entry)
    if as_json:
        typer.echo(
            common.json_object({"allowed": decision.is_allowed, "reason": decision.reason.value, "entry": entry})
        )
    else:
        typer.echo(f"{'yes' if decision.is_allowed else 'no'}: {_why(decision, asked, entry)}")
    if not decision.is_allowed:
        raise typer.Exit(DENIED)


async def _decision(bootstrap_servers: str, asked: AclQuestion) -> AclDecision:
    """Decides by the entries that concern a resource, and by what the file of a broker says."""
    from replog.access.entries import AclFilter, PatternType
    from replog.access.standard import decide
    from replog.config.access_keys import principals_of
    from replog.errors import UnsupportedVersionError
    from replog.metadata.records import ResourceType

    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting("asking the brokers"):
            entries = await admin.describe_acls(AclFilter(asked.kind, asked.name, PatternType.MATCH))
            broker = (await admin.describe_cluster()).brokers[0]
            try:
                configs = await admin.describe_node_configs(broker.broker_id)
            except UnsupportedVersionError:  # Apache Kafka's tells with the others what its file says
                configs = await admin.describe_configs((ResourceType.BROKER, str(broker.broker_id)))
    values = {config.name: config.value or "" for config in configs}
    return decide(
        entries,
        asked,
        principals_of(values.get("super.users", "")),
        allows_unlisted=values.get("allow.everyone.if.no.acl.found", "").lower() == "true",
    )


def _why(decision: AclDecision, asked: AclQuestion, entry: str | None) -> str:
    from replog.access.standard import Reason

    resource = f"{asked.kind.name.lower().replace('_', ' ')} {asked.name}"
    match decision.reason:
        case Reason.SUPER_USER:
            return f"{asked.principal} is in super.users"
        case Reason.ENTRY:
            return f"{entry}"
        case Reason.NO_ENTRY:
            return f"there are entries for {resource}, and none of them lets {asked.principal} do it from {asked.host}"
        case Reason.UNLISTED:
            says = str(decision.is_allowed).lower()
            return f"there is no entry for {resource}, and allow.everyone.if.no.acl.found is {says}"


def _filter(principal: str | None, concerning: str | None) -> AclFilter:
    from replog.access.entries import AclFilter, PatternType

    pattern = PatternType.ANY if concerning is None else PatternType.MATCH
    return AclFilter(name=concerning, pattern=pattern, principal=principal)


def _entries(sentences: Sequence[str], *, is_literal: bool) -> tuple[AclEntry, ...]:
    from replog.access.sentences import parse_entries

    return tuple(entry for each in sentences for entry in parse_entries(each, is_literal=is_literal))


def _show(entries: Sequence[AclEntry], *, as_json: bool) -> None:
    from replog.access.sentences import sentence

    for entry in entries:
        words = {
            name: value.name if (value := getattr(entry, name)) and hasattr(value, "name") else value
            for name in entry.__struct_fields__
        }
        typer.echo(common.json_object(words) if as_json else sentence(entry))
    if not entries and not as_json:
        typer.echo("no such entries")
