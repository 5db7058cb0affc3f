"""How the cluster is: the sentence and the facts of `replog status`, the brokers, and the metadata quorum."""

from __future__ import annotations

from aiohttp import web
from msgspec.structs import asdict

from replog.cli.views.health import facts, sentence
from replog.console.asking import answered
from replog.console.context import ASK_MS, CONTEXT


async def about(request: web.Request) -> web.Response:
    """Tells what this console may do."""
    settings = request.app[CONTEXT].settings
    return answered(
        {
            "bootstrap_servers": settings.bootstrap_servers,
            "allow_changes": settings.allow_changes,
            "has_timeline": settings.metadata_dir is not None,
        }
    )


async def health(request: web.Request) -> web.Response:
    """Tells how the cluster is, and whom it waits for."""
    found = await request.app[CONTEXT].health.get()
    leader_id = -1 if found.quorum is None else found.quorum.leader_id
    brokers = [
        asdict(each) | {"is_up": each.is_up, "is_controller": each.broker_id == leader_id} for each in found.brokers
    ]
    return answered(
        {
            "sentence": sentence(found),
            "is_healthy": found.is_healthy,
            "cluster_id": found.cluster_id,
            "facts": facts(found),
            "brokers": brokers,
        }
    )


async def quorum(request: web.Request) -> web.Response:
    """Tells the leader, the voters and the observers of the metadata quorum."""
    return answered(await request.app[CONTEXT].admin.describe_quorum(timeout_ms=ASK_MS))
