"""`replog configs`: what is in force for a topic, a broker or the cluster, and changes while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common

if TYPE_CHECKING:
    from pathlib import Path

    from replog.metadata.records import ResourceType
    from replog.rpc.node_messages import ConfigDescription

app = typer.Typer(help="Show and change the configuration of topics, brokers and the cluster.", no_args_is_help=True)

Topic = Annotated[str, typer.Option("--topic", metavar="NAME", help="Of this topic.")]
Broker = Annotated[
    int,
    typer.Option(
        "--broker",
        metavar="ID",
        max=common.INT_MAX,
        show_default=False,
        help="Of this broker; default: of the whole cluster.",
    ),
]


@app.command("get")
def get(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Default: all.")] = None,
    topic: Topic = "",
    broker: Broker = -1,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the values in force and where each comes from."""
    resource = _resource(topic, broker)
    found = common.ask(bootstrap_servers, lambda admin: admin.describe_configs(resource))
    _print(found, keys, as_json=as_json)


@app.command("describe")
def describe(
    node: Annotated[int, typer.Option("--node", metavar="ID", min=0, max=common.INT_MAX, help="Of this node.")],
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Default: all.")] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show all that one node goes by, broker or controller: its own file too.

    Behind each value stands where it comes from: node (its configuration file), broker or cluster (`replog configs
    set`), or default. With --dir also for a node that does not run: then what its file says.
    """
    found = _of_local_node(bootstrap_servers, directory, node) if directory else _of_node(bootstrap_servers, node)
    _print(found, keys, as_json=as_json)


@app.command("explain")
def explain(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Of a topic, a broker or a node's file.")],
) -> None:
    """Say what keys mean: range, default, where each is set, and where it is not as in Kafka; no broker is asked."""
    from replog.config.docs import explain as explained

    typer.echo("\n\n".join("\n".join(explained(key)) for key in keys))


@app.command("set")
def set_configs(
    configs: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="KEY= alone removes: the next place's value holds.")
    ],
    topic: Topic = "",
    broker: Broker = -1,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Change nothing.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Set values of a topic, a broker or the whole cluster; they hold without a restart."""
    values = {key: value or None for key, value in common.key_values(configs, "configs set").items()}
    resource = _resource(topic, broker)
    common.ask(
        bootstrap_servers,
        lambda admin: admin.alter_configs(resource, values, validate_only=validate_only),
        "changing the configuration",
    )
    for key, value in values.items():
        what = f"{key}={value}" if value is not None else f"{key} removed"
        typer.echo(f"valid: {what}" if validate_only else what)


def _resource(topic: str, broker: int) -> tuple[ResourceType, str]:
    from replog.cli.errors import UsageError
    from replog.metadata.records import ResourceType

    if topic and broker >= 0:
        raise UsageError("--broker", str(broker), "--topic and --broker exclude each other")
    if topic:
        return ResourceType.TOPIC, topic
    return ResourceType.BROKER, str(broker) if broker >= 0 else ""


def _print(found: tuple[ConfigDescription, ...], keys: list[str] | None, *, as_json: bool) -> None:
    for config in _chosen(found, keys) if keys else found:
        typer.echo(common.json_line(config) if as_json else f"{config.name}={_shown(config.value)}  ({config.source})")


def _of_local_node(bootstrap_servers: str, directory: Path, node_id: int) -> tuple[ConfigDescription, ...]:
    """Asks a node of a local cluster at its own address, or reads its file where it does not run."""
    spec = common.node_of(common.local_cluster(bootstrap_servers, directory), node_id)
    if spec.is_alive:
        return _of_node(spec.address, spec.address)
    from replog.broker.requests.config_description import describe_node_configs
    from replog.config.server import ServerConfig
    from replog.metadata.image import MetadataImage

    typer.echo(f"node {node_id} does not run: this is what {spec.config_file} says", err=True)
    return describe_node_configs(MetadataImage(), ServerConfig.from_toml(spec.config_file))


def _of_node(bootstrap_servers: str, node: int | str) -> tuple[ConfigDescription, ...]:
    return common.ask(bootstrap_servers, lambda admin: admin.describe_node_configs(node), "asking the node")


def _chosen(found: tuple[ConfigDescription, ...], keys: list[str]) -> tuple[ConfigDescription, ...]:
    import difflib

    from replog.cli.errors import UsageError
    from replog.metadata.config_keys import NEAR_ENOUGH

    by_name = {config.name: config for config in found}
    for key in keys:
        if key not in by_name:
            near = difflib.get_close_matches(key, by_name, n=1, cutoff=NEAR_ENOUGH)
            advice = f'Did you mean "{near[0]}"?' if near else "Without a key all are shown"
            raise UsageError("KEY", key, f'unknown configuration "{key}". {advice}')
    return tuple(by_name[key] for key in keys)


def _shown(value: str | None) -> str:
    return "" if value is None else value
