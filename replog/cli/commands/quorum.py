"""`replog quorum`: who votes on metadata, how far each is, and changes of the voters while the cluster runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from replog.cli import common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from replog.client import Admin
    from replog.rpc.node_messages import DescribeQuorumResponse, QuorumMember

app = typer.Typer(help="Look at the metadata quorum and change its voters.", no_args_is_help=True)

CHANGE_TIMEOUT_MS = 60_000
"""A new voter must catch up before it may vote."""

FETCHED_WITHIN_MS = 10_000
"""A node that follows the metadata log fetches several times a second."""

VoterId = Annotated[int, typer.Argument(min=0, max=common.INT_MAX, help="Node id of the voter.")]


@app.command("describe")
def describe(
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the leader, the voters and the observers, with how far behind each is."""
    quorum = common.ask(bootstrap_servers, lambda admin: admin.describe_quorum(), "asking the quorum")
    if as_json:
        typer.echo(common.json_line(quorum))
        return
    for line in summary(quorum):
        typer.echo(line)
    common.out_console().print(_table(quorum))


@app.command("add-voter")
def add_voter(
    voter_id: VoterId,
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            metavar="HOST:PORT",
            help="Where other nodes reach it (inter.broker.listener); default: as it is registered.",
        ),
    ] = "",
    directory_id: Annotated[
        UUID | None, typer.Option("--directory-id", help="Of its metadata log; default: the one it fetches with.")
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Let a node vote that follows the metadata log and has caught up."""
    common.ask(
        bootstrap_servers, lambda admin: _add(admin, voter_id, directory_id, endpoint), f"adding voter {voter_id}"
    )
    typer.echo(f"node {voter_id} votes")


@app.command("remove-voter")
def remove_voter(
    voter_id: VoterId,
    directory_id: Annotated[
        UUID | None, typer.Option("--directory-id", help="Only if its metadata log is in this directory.")
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Take a node's vote away; it may go on as an observer."""
    common.ask(
        bootstrap_servers,
        lambda admin: admin.remove_voter(voter_id, directory_id, timeout_ms=CHANGE_TIMEOUT_MS),
        f"removing voter {voter_id}",
    )
    typer.echo(f"node {voter_id} no longer votes")


async def _add(admin: Admin, voter_id: int, directory_id: UUID | None, endpoint: str) -> None:
    from replog.errors import InvalidRequestError

    quorum = await admin.describe_quorum()
    directory_id = _directory_to_add(quorum.members, voter_id, directory_id)
    if not endpoint:
        brokers = (await admin.describe_cluster()).brokers
        endpoint = next((f"{b.host}:{b.port}" for b in brokers if b.broker_id == voter_id), "")
    if not endpoint:
        raise InvalidRequestError(
            f"node {voter_id} is no registered broker: say with --endpoint where other nodes reach it"
        )
    await admin.add_voter(voter_id, directory_id, endpoint, timeout_ms=CHANGE_TIMEOUT_MS)


def _directory_to_add(members: Sequence[QuorumMember], voter_id: int, directory_id: UUID | None) -> UUID:
    """Returns the id of the directory that gets a vote.

    Raises:
        DuplicateVoterError: The node votes already.
        InvalidRequestError: None is given, and which one it is cannot be told.
    """
    from replog.errors import DuplicateVoterError

    for member in members:
        if member.node_id == voter_id and member.is_voter and directory_id in {None, member.directory_id}:
            raise DuplicateVoterError(
                f"node {voter_id} is a voter already, with the directory {member.directory_id}; if that disk is lost, remove the "
                "voter first"
            )
    found = [one for one in members if one.node_id == voter_id and not one.is_voter and _is_fetching(one)]
    return directory_id or _only_directory(voter_id, found)


def _is_fetching(member: QuorumMember) -> bool:
    """Whether a member has fetched lately: the directory of a disk that was lost is still listed for a while."""
    return 0 <= member.last_fetch_age_ms < FETCHED_WITHIN_MS


def _only_directory(voter_id: int, observers: list[QuorumMember]) -> UUID:
    """Returns the id of the directory that an observer fetches with.

    Raises:
        InvalidRequestError: The node does not fetch, or fetches with several directories.
    """
    from replog.errors import InvalidRequestError

    ids = [observer.directory_id for observer in observers if observer.directory_id is not None]
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise InvalidRequestError(
            f"node {voter_id} does not follow the metadata log: start it with this cluster's voters in "
            "controller.quorum.voters, and wait until `replog quorum describe` shows it as an observer"
        )
    raise InvalidRequestError(f"node {voter_id} follows with {len(ids)} directories: name one with --directory-id")


def summary(quorum: DescribeQuorumResponse) -> list[str]:
    """Says what holds for the quorum as a whole, one thing a line."""
    from replog.client.admin.health import other_directories
    from replog_checkpoints import uuid_to_text

    is_kafkas = quorum.log_start_offset < 0  # it does not tell where its log starts
    static = (
        "from controller.quorum.voters (cannot be changed)"
        if is_kafkas
        else "from the configuration (not all were heard yet)"
    )
    kind = "in the log (can be changed)" if quorum.is_dynamic else static
    start = "" if is_kafkas else f"{quorum.log_start_offset:,} "
    lines = [
        f"leader {quorum.leader_id}, epoch {quorum.leader_epoch}, voters {kind}",
        f"log {start}to {quorum.log_end_offset:,}, committed to {quorum.high_watermark:,}",
    ]
    lines += [
        f"node {node_id} does not vote: the voter set names another log directory. Where its meta.properties was damaged or "
        f"changed, put directory.id={uuid_to_text(named)} back; where the disk is another one, `replog quorum remove-voter "
        f"{node_id}`, then `add-voter {node_id}`"
        for node_id, named in sorted(other_directories(quorum).items())
    ]
    if quorum.commit_ms_p50 >= 0:
        lines.append(f"the last commits took {quorum.commit_ms_p50} ms (p50), {quorum.commit_ms_p99} ms (p99)")
    return lines


def _table(quorum: DescribeQuorumResponse) -> RenderableType:
    from replog.cli.terminal.grid import Grid

    rows = [
        [
            str(member.node_id),
            _lag(member, quorum.log_end_offset),
            _age(member.last_fetch_age_ms),
            _age(member.last_caught_up_age_ms),
            _part(member, quorum.leader_id),
            member.endpoint or "-",
            "not known" if member.directory_id is None else str(member.directory_id),
        ]
        for member in quorum.members
    ]
    return Grid((">node", ">lag", ">last fetch", ">caught up", "part", "endpoint", "directory"), rows)


def _part(member: QuorumMember, leader_id: int) -> str:
    if member.node_id == leader_id and member.is_voter:
        return "leader"
    return "voter" if member.is_voter else "observer"


def _lag(member: QuorumMember, end_offset: int) -> str:
    return "unknown" if member.log_end_offset < 0 else f"{max(0, end_offset - member.log_end_offset):,}"


def _age(age_ms: int) -> str:
    return "never" if age_ms < 0 else f"{age_ms:,} ms ago" if age_ms else "now"
