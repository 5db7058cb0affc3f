"""Brokers in this process, for programs and tests: complete nodes, with files and ports, and no other process.

A broker shares the process's interpreter with whoever uses it: for speed start processes (`LocalCluster`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from replog.broker.node.node import Node
from replog.client.sync.loop_thread import LoopThread
from replog.cluster.processes import KeptPorts
from replog.cluster.security import FOLDER, LISTENER, ClusterCertificates
from replog.config.server import ServerConfig
from replog.config.server_keys import InterBrokerTransport
from replog.errors import BrokerClosedError, InvalidRequestError
from replog.metadata.cluster_ids import new_cluster_id
from replog_checkpoints import META_PROPERTIES_FILE, OsFileSystem, read_meta_properties

if TYPE_CHECKING:
    from replog.client import Security
    from replog.cluster.node_spec import ConfigValue

BROKERS_MAX = 9
"""More of them in one process would only wait for each other."""


def embedded(
    path: str | os.PathLike[str] | None = None,
    *,
    brokers: int = 1,
    config: Mapping[str, ConfigValue] | None = None,
    load: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    secure: bool = False,
) -> EmbeddedCluster:
    """Makes a broker, or a cluster of some, in this process: started and ended by `with` or `async with`.

    By `with` the brokers run in the thread of the sync clients; by `async with` in the running loop, which must not be held up.

    Args:
        path: The folder of the data, made if it is not there; None: a temporary one, which is deleted at the end.
        brokers: The number of brokers; more than one only with a temporary folder.
        config: The keys of each broker's configuration beside those that are set here, by dotted name.
        load: The file of a capture, or several (`replog capture`): their topics are there when the brokers serve.
        secure: Whether brokers and clients prove to one another who they are, by certificates that are made in the folder; clients
            are given `security`.  Needs the extra `security`.

    Raises:
        InvalidRequestError: The number of brokers is none that can be started, or the configuration names another folder.
    """
    return EmbeddedCluster(path, brokers=brokers, config=config, load=load, secure=secure)


class EmbeddedCluster:
    """One or more brokers in this process; made by `embedded`.

    Attributes:
        nodes: The brokers that run, in order of their ids.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        brokers: int = 1,
        config: Mapping[str, ConfigValue] | None = None,
        load: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        secure: bool = False,
    ) -> None:
        if type(brokers) is not int or not 1 <= brokers <= BROKERS_MAX:
            raise InvalidRequestError(f"brokers={brokers!r}: 1 to {BROKERS_MAX} can run in one process")
        if path is not None and not os.fspath(path):
            raise InvalidRequestError("path is empty: name a folder, or leave it out for a temporary one")
        if config is not None and not isinstance(config, Mapping):
            raise InvalidRequestError(f"config is a {type(config).__name__}, which is no mapping of keys to values")
        if path is not None and brokers > 1:
            raise InvalidRequestError(
                f"brokers={brokers} with a folder: only one broker keeps its data. Leave path out for a test, or use"
                " LocalCluster, whose brokers are processes"
            )
        if config is not None and "log.dirs" in config:
            raise InvalidRequestError("config has log.dirs: give the folder of the data as path")
        self.nodes: tuple[Node, ...] = ()
        self._path = None if path is None else Path(path).absolute()
        self._brokers_count = brokers
        self._config = dict(config or {})
        self._captures = [Path(each).absolute() for each in ([load] if isinstance(load, (str, os.PathLike)) else load)]
        self._is_secure = secure
        self._certificates: ClusterCertificates | None = None
        self._is_used = False
        self._running: AsyncExitStack | None = None
        self._thread: LoopThread | None = None
        self._pid = os.getpid()  # of the process that has the brokers; a fork's copy of this object has none

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients: replog's, and Kafka's."""
        return ",".join(node.address for node in self._started())

    @property
    def security(self) -> Security | None:
        """What clients are given as `security=`; None: they need nothing."""
        self._started()
        return None if self._certificates is None else self._certificates.security

    def _started(self) -> Sequence[Node]:
        if not self.nodes:
            raise BrokerClosedError("no broker runs: use embedded() by `with` or `async with`")
        return self.nodes

    async def __aenter__(self) -> Self:
        self._use()
        try:
            await self._start()
        except BaseException:
            self._is_used = False
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_copy:
            return
        try:
            await self._stop()
        finally:
            self._is_used = False

    def __enter__(self) -> Self:
        self._use()
        try:
            self._thread = LoopThread.acquire(self)
            self._thread.run(self._start)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _use(self) -> None:
        """Notes that a block begins; raises where one is under way, whose brokers a second start would share or lose."""
        if self._is_used:
            raise InvalidRequestError("these brokers run already: make another embedded()")
        self._is_used, self._pid = True, os.getpid()

    @property
    def _is_copy(self) -> bool:
        """Whether this is a fork's copy: the brokers, their thread and their folder are the parent's."""
        return self._pid != os.getpid()

    def _release(self) -> None:
        if self._is_copy:
            return
        try:
            if self._thread is not None:
                self._thread.run(self._stop)
        finally:
            LoopThread.release(self)
            self._thread, self._is_used = None, False

    # ---- in the loop ----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        async with AsyncExitStack() as stack:
            folder, is_temporary = self._path, self._path is None
            if folder is None:
                folder = Path(tempfile.mkdtemp(prefix="replog-"))
                stack.callback(
                    weakref.finalize(self, _remove, folder, os.getpid())
                )  # at the program's end at the latest
            nodes: list[Node] = []
            stack.push_async_callback(_end, nodes, is_temporary=is_temporary)
            for config in self._configs(folder, stack):
                nodes.append(await Node.start(config))  # noqa: PERF401 -- those that run are ended if one fails
            await asyncio.gather(*(node.wait_until_ready() for node in nodes))
            if self._captures:
                certificates = self._certificates
                await _load(
                    ",".join(node.address for node in nodes),
                    self._captures,
                    None if certificates is None else certificates.security,
                )
            self._running, self.nodes = stack.pop_all(), tuple(nodes)

    async def _stop(self) -> None:
        running, self._running, self.nodes = self._running, None, ()
        if running is not None:
            await running.aclose()

    def _secured(self, folder: Path, cluster_id: str, node_id: int) -> Mapping[str, ConfigValue]:
        """Returns the keys of a broker where they are secure; makes the certificates that are not there yet."""
        if not self._is_secure:
            return {}
        certificates = self._certificates = ClusterCertificates(folder / FOLDER)
        if not certificates.exist:
            certificates.create(cluster_id, range(1, self._brokers_count + 1))
        return {**certificates.node_keys(node_id), "listeners": [f"{LISTENER}://127.0.0.1:0"]}

    def _configs(self, folder: Path, stack: AsyncExitStack) -> list[ServerConfig]:
        # a group of Kafka's clients shares at once: nobody else is waited for
        # and the program need not load gRPC, which takes a quarter of the time until the first record is acknowledged
        shared: dict[str, ConfigValue] = {
            "listeners": ["127.0.0.1:0"],
            "group.initial.rebalance.delay.ms": 0,
            "inter.broker.transport": InterBrokerTransport.TCP.value,
        }
        path, cluster_id = folder / META_PROPERTIES_FILE, new_cluster_id()
        if not path.exists():
            shared["cluster.id"] = cluster_id
        elif self._is_secure and (meta := read_meta_properties(OsFileSystem(), str(path))) is not None:
            cluster_id = meta.cluster_id
        if self._brokers_count == 1:
            own = [{"node.id": 1, "log.dirs": [str(folder)]}]
        else:
            ports = KeptPorts()
            stack.callback(ports.release)
            addresses = [f"127.0.0.1:{port}" for port in ports.take(self._brokers_count)]
            shared["controller.quorum.voters"] = [f"{number}@{at}" for number, at in enumerate(addresses, start=1)]
            own = [
                {"node.id": number, "log.dirs": [str(folder / f"node-{number}")], "inter.broker.listener": at}
                for number, at in enumerate(addresses, start=1)
            ]
        secured = [self._secured(folder, cluster_id, number) for number in range(1, self._brokers_count + 1)]
        return [
            ServerConfig.from_mapping({**shared, **values, **keys, **self._config})
            for values, keys in zip(own, secured, strict=True)
        ]


async def _end(nodes: Sequence[Node], *, is_temporary: bool) -> None:
    """Stops all brokers; those whose data are deleted need not close their logs in order."""
    await asyncio.gather(*(node.abort() if is_temporary else node.stop() for node in nodes))


async def _load(bootstrap_servers: str, captures: Sequence[Path], security: Security | None) -> None:
    from replog.cluster.capture import (
        load_capture,
    )  # brings the clients, which most programs that embed a broker load anyway

    for path in captures:
        await load_capture(bootstrap_servers, path, security=security)


def _remove(folder: Path, pid: int) -> None:
    """Removes a temporary folder, unless this is a fork's copy of the process that made it: that one still uses it."""
    if pid == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
