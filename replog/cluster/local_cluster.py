"""`LocalCluster`: several node processes on loopback, each broker, controller or both, with free ports.

A cluster directory::

    cluster.json        which nodes, ports and process ids; how a later command finds them again
    node-1/server.toml  configuration of one node
    node-1/server.log   what it printed
    node-1/data/        its log directory
    certs/              where the cluster is secure: see `replog.cluster.security`

Nothing in these files names the directory itself, so it can be reached by any path, and moved while the nodes are stopped.

Several commands may work on one directory at the same time.  Who starts a node, or forgets one, holds the lock of the
directory from reading the file to writing it, so that all that runs is named there; nobody waits for a node under the lock.

Commands that want nothing but the addresses of nodes import this: clients and logs are imported where they are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from replog.cluster import cluster_file
from replog.cluster.known_nodes import KnownNodes
from replog.cluster.node_processes import NodePlace, begin_forks, prepare_forks, spawn_node
from replog.cluster.node_spec import BOTH_ROLES, DATA_FOLDER, ConfigValue, NodeSpec
from replog.cluster.processes import POLL_S, Child, KeptPorts, ProcessId, last_lines, wait_until_gone
from replog.cluster.security import FOLDER, LISTENER, ClusterCertificates
from replog.errors import BrokerNotAvailableError, ClusterAuthorizationError, ConfigError, ReplogError
from replog.metadata.cluster_ids import new_cluster_id

if TYPE_CHECKING:
    from replog.client import Admin, Security

STOP_TIMEOUT_S = 15.0
READY_TIMEOUT_S = 60.0
"""As long as a busy machine may take to start the interpreters of all nodes, and to elect a controller."""

READY_ATTEMPT_MS = 1_000

RUNNING = "running"
"""What a broker calls itself that the controller has unfenced: `LifecycleState` of it."""

NOTE_S = 0.2
"""How long a command that has stopped a node, or starts it again, may take to write that down after the process is gone."""

_STATUS_WHEN_STOPPED = (0, -signal.SIGTERM, -signal.SIGKILL)
"""How a process ends that somebody told to end; one that cannot start ends with 1 or 2."""


_OF_BEFORE = (
    "is of a version whose nodes had one port for clients and nodes. In each node's server.toml rename listeners to "
    "inter.broker.listener, give listeners a port of its own, and start the nodes by `replog server start`"
)


class NodeRunsError(ConfigError):
    """A node that was to be started, or forgotten, runs already: perhaps another command has just started it."""

    def __init__(self, directory: Path, spec: NodeSpec) -> None:
        pid = "" if spec.process is None else f" as process {spec.process.pid}"
        super().__init__(
            "node_id",
            spec.node_id,
            f"node {spec.node_id} runs already{pid}; another command may have started it at the same time. "
            f"`replog cluster restart {spec.node_id} --dir {directory}` stops it and starts it again",
        )


class LocalCluster:
    """Processes of one cluster directory.

    Use it as an async context manager (`async with await LocalCluster.start(...)`) to have them stopped at the end;
    with `die_with_parent` the kernel ends them in any case.
    """

    def __init__(
        self, directory: Path, cluster_id: str, nodes: Mapping[int, NodeSpec], *, die_with_parent: bool
    ) -> None:
        self.directory = directory
        self.cluster_id = cluster_id
        self.certificates = ClusterCertificates(directory / FOLDER)
        self._known = KnownNodes(directory, cluster_id, nodes)
        self._die_with_parent = die_with_parent
        self._ports = KeptPorts()  # a node that was killed finds its own free when it comes back

    @classmethod
    async def start(
        cls,
        directory: str | Path,
        *,
        nodes: int = 3,
        config: Mapping[str, ConfigValue] | None = None,
        node_config: Mapping[int, Mapping[str, ConfigValue]] | None = None,
        roles: Mapping[int, Sequence[str]] | None = None,
        places: Mapping[int, NodePlace] | None = None,
        die_with_parent: bool = True,
        wait: bool = True,
        first_port: int = 0,
        secure: bool = False,
    ) -> LocalCluster:
        """Creates a cluster in `directory` and starts it; its controllers are the voters of the metadata quorum.

        Args:
            directory: The folder of the cluster, empty or absent.
            nodes: The number of nodes, from 1 to 9.
            config: The keys for every node, over the defaults of a local cluster.
            node_config: The keys of one node, such as its `broker.rack`, over those.
            roles: "broker", "controller" or both of each node that is not both.
            places: The surroundings of a node's process; not kept in the directory, so unknown after `load`.
            die_with_parent: Whether the processes end with this one.
            wait: Whether to return only when every broker is unfenced.
            first_port: The port of node 1 for clients; 0: any that is free, as for all others.
            secure: Whether nodes and clients prove to one another who they are, by certificates that are made now; clients are given
                `security`.  Needs the extra `security`.

        Raises:
            ConfigError: A cluster exists there, a key is wrong, or an extra is not installed.
            BrokerNotAvailableError: A node did not come up; the message holds the end of its log.
        """
        if not 1 <= nodes <= 9:
            raise ConfigError("nodes", nodes, f"a local cluster has 1 to 9 nodes, not {nodes}")
        directory = Path(directory).absolute()  # noqa: ASYNC240 -- looks nothing up on a disk
        cluster = cls(directory, new_cluster_id(), {}, die_with_parent=die_with_parent)
        try:
            ports = [first_port, *cluster._ports.take(nodes - 1)] if first_port else cluster._ports.take(nodes)
            cluster.nodes.update(_new_specs(directory, ports, cluster._ports.take(nodes), roles or {}, places or {}))
            await cluster._start_nodes(config or {}, node_config or {}, wait=wait, secure=secure)
        except BaseException:
            cluster._ports.release()
            raise
        return cluster

    @classmethod
    def load(cls, directory: str | Path) -> LocalCluster:
        """Loads the cluster that an earlier command started in `directory`.

        Raises:
            ConfigError: There is no cluster, or its file cannot be read.
        """
        directory = Path(directory)
        file, absolute = directory / cluster_file.NAME, directory.absolute()
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
            if any("peer_port" not in entry for entry in state["nodes"]):
                raise ConfigError("directory", str(directory), f"{file} {_OF_BEFORE}")
            specs = {entry["node_id"]: NodeSpec.from_state(entry, absolute) for entry in state["nodes"]}
            return cls(absolute, state["cluster_id"], specs, die_with_parent=False)
        except FileNotFoundError:
            raise ConfigError(
                "directory",
                str(directory),
                f"no cluster in {directory}. `replog cluster start --dir {directory}` makes one.",
            ) from None
        except NotADirectoryError:
            raise ConfigError(
                "directory", str(directory), f"{directory} is no directory. Name the directory of a cluster."
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError("directory", str(directory), f"{file} is damaged: {error!r}") from error

    @property
    def nodes(self) -> dict[int, NodeSpec]:
        """The nodes by their numbers, as they are known here; always the same mapping."""
        return self._known.nodes

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(spec.address for spec in self.nodes.values())

    @property
    def security(self) -> Security | None:
        """What clients are given as `security=`; None: they need nothing."""
        return self.certificates.security

    async def _start_nodes(
        self,
        config: Mapping[str, ConfigValue],
        node_config: Mapping[int, Mapping[str, ConfigValue]],
        *,
        wait: bool,
        secure: bool,
    ) -> None:
        """Makes the cluster and starts every node, and leaves none running where one of them fails."""
        cluster_file.refuse_cluster(self.directory)
        if any(spec.place.is_usual for spec in self.nodes.values()):
            begin_forks()
            import replog.client.admin.admin  # noqa: F401 -- waits for the nodes; loaded while the other process loads theirs

            await prepare_forks()
        try:
            with cluster_file.locked_for_new(self.directory):
                if secure:
                    hosts = (spec.place.host for spec in self.nodes.values())
                    self.certificates.create(self.cluster_id, self.nodes, hosts)
                self._write_configs(config, node_config)
                for spec in self.nodes.values():
                    self._launch(spec)
            if wait:
                await self.wait_until_ready()
        except BaseException:
            await self.kill_all()
            raise

    # ---- one node ------------------------------------------------------------------------------------------------------

    def add_node(self, *, roles: Sequence[str] = BOTH_ROLES, config: Mapping[str, ConfigValue] | None = None) -> int:
        """Starts one more node, numbered above all others; returns its number.

        A controller among them follows the metadata log until it is made a voter (`Admin.add_voter`).

        Args:
            roles: "broker", "controller" or both.
            config: The node's keys, over the defaults of a local cluster.
        """
        with self._known.changing():
            node_id = max(self.nodes) + 1
            voters = self._voters()
            port, peer_port = self._ports.take(2)
            spec = NodeSpec(node_id, port, peer_port, self.directory / f"node-{node_id}", roles=tuple(roles))
            self.nodes[node_id] = spec
            if self.certificates.exist:
                self.certificates.add_node(self.cluster_id, node_id, spec.place.host)
            spec.write_config(self.cluster_id, voters, {**self._secured(spec), **(config or {})})
            self._launch(spec)
        return node_id

    async def remove_node(self, node_id: int) -> None:
        """Stops a node in order and forgets it; its files stay.

        Raises:
            ConfigError: There is no such node, or another command has started it again.
        """
        await self.stop(node_id)
        with self._known.changing():
            spec = self._known.node(node_id)
            if spec.is_alive:
                raise NodeRunsError(self.directory, spec)
            del self.nodes[node_id]
            self._known.write()

    def start_node(self, node_id: int, *, accept_empty: bool = False) -> None:
        """Starts a node that is not running.

        Args:
            node_id: The node to start.
            accept_empty: Whether it starts with empty log directories where those that it had are not there any more.

        Raises:
            NodeRunsError: It runs already; another command may have started it.
            ConfigError: There is no such node, or its data is not where it was.
            TimeoutError: The process that forks nodes does not answer; the text says what to do.
        """
        with self._known.changing():
            spec = self._known.node(node_id)
            if spec.is_alive:
                raise NodeRunsError(self.directory, spec)
            if not accept_empty:
                self.require_data([node_id])
            self._launch(spec, accept_empty=accept_empty)

    def _launch(self, spec: NodeSpec, *, accept_empty: bool = False) -> None:
        """Starts the process of a node and writes down which it is; the caller holds the lock of the directory."""
        self._known.make_room()
        spec.child = self._spawn(spec, accept_empty=accept_empty or not spec.has_data)
        spec.process = ProcessId.of(spec.child.pid)
        try:
            self._known.write()
        except BaseException:  # no other command would find it
            spec.child.kill()
            spec.child.wait()
            raise

    def _spawn(self, spec: NodeSpec, *, accept_empty: bool) -> Child:
        return spawn_node(
            spec.config_file,
            spec.log_file,
            spec.place,
            die_with_parent=self._die_with_parent,
            accept_empty=accept_empty,
        )

    def require_data(self, node_ids: Collection[int]) -> None:
        """Looks whether the data that nodes had is where it was, before any of them is started.

        Raises:
            ConfigError: The data of one of them is not there; the text says where it should be.
        """
        for spec in map(self.nodes.__getitem__, node_ids):
            missing = spec.missing_data() if spec.has_data else []
            if missing:
                names, own = ", ".join(missing), spec.directory / DATA_FOLDER
                here = own.is_dir() and str(own) not in missing
                hint = f' There is a {own}: if that is it, set "log.dirs" = ["{DATA_FOLDER}"] in {spec.config_file}.'
                raise ConfigError(
                    "log.dirs",
                    missing,
                    f"node {spec.node_id} had its data in {names}, and there is none now. Nothing was started. Put it "
                    f"back, or correct log.dirs in {spec.config_file}.{hint if here else ''} To start the node empty: "
                    f"`replog cluster restart {spec.node_id} --dir {self.directory} --accept-empty`, in Python "
                    "start_node(..., accept_empty=True)",
                )

    async def kill(self, node_id: int) -> None:
        """Ends a node with SIGKILL and waits until it is gone."""
        spec = self._known.node_now(node_id)
        spec.tell(signal.SIGKILL)
        await self._wait_until_gone(spec)

    async def stop(self, node_id: int) -> None:
        """Stops a node in order (SIGTERM); with SIGKILL if it does not within 15 s."""
        spec = self._known.node_now(node_id)
        spec.tell(signal.SIGTERM)
        await self._wait_until_stopped(spec)

    def pause(self, node_id: int) -> None:
        """Stops the node's process from running (SIGSTOP) without ending it."""
        self._signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGCONT)

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        process = self._known.node_now(node_id).process
        if process is None or not process.signal(number):
            raise ConfigError("node_id", node_id, f"node {node_id} is not running")

    async def _wait_until_stopped(self, spec: NodeSpec) -> None:
        """Waits until a node that has been told to stop is gone; kills it where it does not go in time."""
        if not await self._wait_until_gone(spec):
            spec.tell(signal.SIGKILL)
            await self._wait_until_gone(spec)

    async def _wait_until_gone(self, spec: NodeSpec) -> bool:
        """Whether the process that the node has now ended within 15 s; a node without one has."""
        process = spec.process
        if process is None:
            return True
        gone = await wait_until_gone(process, spec.child, STOP_TIMEOUT_S)
        if gone:
            with (
                contextlib.suppress(OSError),
                self._known.alone() as is_there,
            ):  # else the file names a process that is gone
                self._forget(spec, process)
                if is_there:
                    self._known.write()
            self._forget(spec, process)
        return gone

    @staticmethod
    def _forget(spec: NodeSpec, process: ProcessId) -> None:
        """Counts a node as without a process where it is still this one: another command may have started the node again."""
        if spec.process == process:
            spec.process = None
            spec.child = None

    # ---- all nodes -----------------------------------------------------------------------------------------------------

    async def wait_until_ready(
        self,
        timeout_s: float = READY_TIMEOUT_S,
        *,
        node_ids: Collection[int] | None = None,
        on_recovery: Callable[[str], None] | None = None,
    ) -> None:
        """Returns when every broker, or each of `node_ids`, is registered and unfenced, and there is a controller.

        Args:
            timeout_s: The longest wait, counted anew whenever a node has got on with the recovery of its logs.
            node_ids: The nodes to wait for; None: all.
            on_recovery: The function that is told how far that is, in words.

        Raises:
            BrokerNotAvailableError: A process ended, or the time is over; holds the end of the node's log.
            ConfigError: Another command has removed one of the nodes.
        """
        from replog.client import Admin

        deadline = time.monotonic() + timeout_s
        wanted = {
            node_id
            for node_id in (self.nodes if node_ids is None else node_ids)
            if "broker" in self.nodes[node_id].roles
        }
        recovering = ""
        async with Admin(self.bootstrap_servers, security=self.security) as admin:
            while True:
                if not self._are_alive(wanted):
                    await asyncio.sleep(NOTE_S)
                    self._require_alive(wanted)
                if await self._is_ready(admin, wanted):
                    with self._known.alone() as is_there:
                        if is_there:
                            self._known.write()  # that they have data now
                    return
                if (now_recovering := self._recovering(wanted)) != recovering:
                    recovering, deadline = now_recovering, time.monotonic() + timeout_s
                    if on_recovery is not None:
                        on_recovery(recovering)
                if time.monotonic() > deadline:
                    raise BrokerNotAvailableError(f"the cluster was not ready within {timeout_s:g} s; {self._logs()}")
                await asyncio.sleep(POLL_S)

    def _are_alive(self, node_ids: set[int]) -> bool:
        """Whether these nodes run, as far as is known here."""
        return all(self._known.node(node_id).is_alive for node_id in node_ids)

    def _require_alive(self, node_ids: set[int]) -> None:
        """Raises an error for one of the nodes that does not run, unless another command has started it again."""
        if self._are_alive(node_ids):
            return
        self._known.catch_up()
        for spec in map(self._known.node, sorted(node_ids)):
            if spec.is_alive:
                continue
            if spec.process is None or (spec.child is not None and spec.child.poll() in _STATUS_WHEN_STOPPED):
                raise BrokerNotAvailableError(
                    f"node {spec.node_id} was stopped before it was ready, by another command or a signal. "
                    f"`replog cluster restart {spec.node_id} --dir {self.directory}` starts it again"
                )
            raise BrokerNotAvailableError(f"node {spec.node_id} ended while starting:\n{last_lines(spec.log_file, 8)}")

    def _recovering(self, node_ids: set[int]) -> str:
        """Returns what the nodes say about the recovery of their logs; "" when they say nothing."""
        from replog.broker.node.recovery_log import RECOVERING

        told: list[str] = []
        for node_id in sorted(node_ids):
            _, found, rest = last_lines(self.nodes[node_id].log_file, 1).rpartition(RECOVERING)
            if found:
                told.append(f"node {node_id} {RECOVERING}{rest}")
        return "; ".join(told)

    async def _is_ready(self, admin: Admin, wanted: set[int]) -> bool:
        """Whether each broker says so itself, and the metadata do; those alone may still tell of the process before it."""
        try:
            for broker_id in wanted:
                with contextlib.suppress(
                    ClusterAuthorizationError
                ):  # who is refused has been heard by a node that serves
                    told = await admin.describe_node(
                        self.nodes[broker_id].address, partitions=(), timeout_ms=READY_ATTEMPT_MS
                    )
                    if told.state != RUNNING:
                        return False
            metadata = await admin.describe_cluster(timeout_ms=READY_ATTEMPT_MS)
        except ReplogError:
            return False
        active = {broker.broker_id for broker in metadata.brokers if not broker.fenced}
        return active >= wanted and metadata.controller_id >= 0

    async def stop_all(self) -> None:
        """Stops every node in order, at the same time; those too that another command has started.

        A caller that is cancelled meanwhile has told all of them: they stop, and nobody waits for it.
        """
        await self._end_all(signal.SIGTERM, self._wait_until_stopped)

    async def kill_all(self) -> None:
        """Ends every node with SIGKILL, those of other commands too, also where the caller is cancelled before all are gone."""
        await self._end_all(signal.SIGKILL, self._wait_until_gone)

    async def _end_all(self, number: signal.Signals, wait: Callable[[NodeSpec], Coroutine[Any, Any, object]]) -> None:
        with contextlib.suppress(OSError):  # where the directory cannot be read, those that are known are told
            self._known.catch_up()
        specs = list(self.nodes.values())
        for spec in specs:  # here and not in the tasks: one that is cancelled before its first step does nothing
            spec.tell(number)
        try:
            await asyncio.gather(*map(wait, specs))
        finally:
            self._ports.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_all()

    # ---- files -----------------------------------------------------------------------------------------------------------

    def _voters(self) -> list[str]:
        return [f"{node.node_id}@{node.peer_address}" for node in self.nodes.values() if "controller" in node.roles]

    def _write_configs(
        self, config: Mapping[str, ConfigValue], node_config: Mapping[int, Mapping[str, ConfigValue]]
    ) -> None:
        """Writes the files of all nodes, `config` with what `node_config` has for a node over it.

        Raises:
            ConfigError: The directory of the cluster cannot be made, or not written to.
        """
        voters = self._voters()
        try:
            for spec in self.nodes.values():
                own = {**self._secured(spec), **config, **node_config.get(spec.node_id, {})}
                spec.write_config(self.cluster_id, voters, own)
        except OSError as error:
            raise cluster_file.unusable(self.directory, error) from error

    def _secured(self, spec: NodeSpec) -> Mapping[str, ConfigValue]:
        """Returns the keys of a node of a secure cluster."""
        keys = self.certificates.node_keys(spec.node_id, f"../{FOLDER}")
        return {**keys, **spec.named_listeners(LISTENER)} if keys else {}

    def _logs(self) -> str:
        return "\n".join(f"node {s.node_id}: {last_lines(s.log_file, 3)}" for s in self.nodes.values())


def _new_specs(
    directory: Path,
    ports: Sequence[int],
    peer_ports: Sequence[int],
    roles: Mapping[int, Sequence[str]],
    places: Mapping[int, NodePlace],
) -> dict[int, NodeSpec]:
    """Returns the nodes of a new cluster, numbered from 1, with a port for clients and one for nodes each."""
    return {
        node_id: NodeSpec(
            node_id,
            port,
            peer_port,
            directory / f"node-{node_id}",
            roles=tuple(roles.get(node_id, BOTH_ROLES)),
            place=places.get(node_id, NodePlace()),
        )
        for node_id, (port, peer_port) in enumerate(zip(ports, peer_ports, strict=True), start=1)
    }
