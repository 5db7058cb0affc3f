"""A network namespace for each node, with a router between them that loses packets: links as of machines of their own.

Needs root.  Every node, and the machine itself for the clients, has a pair of virtual Ethernet devices to the router, which
is one more namespace.  Addresses are one /24 of 198.18.0.0/15, the range for benchmarks, which nobody uses::

    198.18.N.1 ...   nodes 1 ...           198.18.N.101 ...   the same nodes, for who must reach past cut links
    198.18.N.253     the clients           198.18.N.254       the router, on each of its devices

A cut link is a rule of the router's: packets from this address to that one vanish, and nobody is told.  TCP keeps them and
sends them again when the link is mended.

Nothing is left behind, whatever ends this process: a namespace lives as long as a small process in it that ends when its
standard input does, and its devices go with it, those of this machine too (`replog` and the process id).  Should such a
device be there without its process: `ip link delete replog...`.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Self

from replog.cluster import LocalCluster, NodePlace
from replog.cluster.node_spec import ConfigValue
from replog.errors import ReplogError
from replog.testing.machines.network import CLIENT, Link, Network

TOOLS = ("ip", "nsenter", "sh", "unshare")
SUBNETS_COUNT = 512
SUBNETS_TRIED = 8
CLIENT_NUMBER, ROUTER_NUMBER, ASIDE_NUMBER = 253, 254, 100

_HOLD = "echo; exec cat >/dev/null"
"""Says that it is there, and ends with its standard input."""


class NamespacesNotAvailableError(ReplogError):
    """This machine does not let us make network namespaces; the message says what it said."""


class Namespaces(Network):
    """One network namespace for each node, and one for the router between them.

    Args:
        node_ids: The nodes that get one; below 100.
    """

    def __init__(self, node_ids: Iterable[int]) -> None:
        super().__init__(node_ids)
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._router: subprocess.Popen[bytes] | None = None
        self._device = f"replog{os.getpid()}"
        self._subnet = ""
        self._ports: dict[int, int] = {}

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.open)
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def node_config(self) -> dict[int, dict[str, ConfigValue]]:
        """Sets `allow.insecure`: only this machine reaches these addresses, which a node cannot know."""
        return {node_id: {"allow.insecure": True} for node_id in self.node_ids}

    def places(self) -> dict[int, NodePlace]:
        return {
            node_id: NodePlace(host=self.host(node_id), listens_on="0.0.0.0", launcher=_inside(holder))  # noqa: S104
            for node_id, holder in self._holders.items()
        }

    def connect(self, cluster: LocalCluster) -> str:
        self._ports = {node_id: spec.port for node_id, spec in cluster.nodes.items()}
        return cluster.bootstrap_servers

    def address_aside(self, node_id: int) -> str:
        return f"{self.host(ASIDE_NUMBER + node_id)}:{self._ports[node_id]}"

    def host(self, number: int) -> str:
        """Returns the address with this number: of a node, of the clients (`CLIENT`), of the router."""
        return f"{self._subnet}.{CLIENT_NUMBER if number == CLIENT else number}"

    # ---- cutting and mending ---------------------------------------------------------------------------------------

    def _on_cut(self, links: Collection[Link]) -> None:
        self._change_rules("add", links)

    def _on_mend(self, links: Collection[Link]) -> None:
        self._change_rules("delete", links)

    def _change_rules(self, verb: str, links: Collection[Link]) -> None:
        _ip(
            [f"rule {verb} from {self.host(source)} to {self.host(to)} blackhole" for source, to in links], self._router
        )

    # ---- making and removing ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Makes namespaces, devices and routes; blocks for some tenths of a second.

        Raises:
            NamespacesNotAvailableError: It is not permitted, or something that is needed is missing.
        """
        try:
            self._router = _hold_namespace()
            for node_id in self.node_ids:
                self._holders[node_id] = _hold_namespace()
            self._connect_clients(self._router)
            self._connect_router(self._router)
            for node_id, holder in self._holders.items():
                self._connect_node(node_id, holder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes all of it; what still runs in there has no network any more."""
        subprocess.run(["ip", "link", "delete", self._device], check=False, capture_output=True)  # noqa: S603, S607 -- ours
        for holder in (self._router, *self._holders.values()):
            if holder is not None:
                holder.communicate()  # closes its standard input
        self._router = None
        self._holders.clear()

    def _connect_clients(self, router: subprocess.Popen[bytes]) -> None:
        """Takes the first of some random subnets to which this machine has no route yet."""
        for attempt in range(SUBNETS_TRIED):
            number = random.randrange(SUBNETS_COUNT)  # noqa: S311 -- not for secrets
            self._subnet = f"198.{18 + number // 256}.{number % 256}"
            client, gateway = self.host(CLIENT), self.host(ROUTER_NUMBER)
            try:
                _ip(
                    [
                        f"link add {self._device} type veth peer name clients netns {router.pid}",
                        f"link set {self._device} up",
                        f"address add {client}/32 dev {self._device}",
                        f"route add {gateway}/32 dev {self._device} src {client}",
                        f"route add {self._subnet}.0/24 via {gateway} src {client}",
                    ]
                )
            except NamespacesNotAvailableError as error:
                if "File exists" not in str(error) or attempt == SUBNETS_TRIED - 1:
                    raise
                _ip([f"link delete {self._device}"])
            else:
                return

    def _connect_router(self, router: subprocess.Popen[bytes]) -> None:
        gateway = self.host(ROUTER_NUMBER)
        commands = [
            f"link add node{node_id} type veth peer name eth0 netns {holder.pid}"
            for node_id, holder in self._holders.items()
        ]
        for device, numbers in {
            "clients": (CLIENT,),
            **{f"node{node_id}": (node_id, ASIDE_NUMBER + node_id) for node_id in self.node_ids},
        }.items():
            commands += [f"link set {device} up", f"address add {gateway}/32 dev {device}"]
            commands += [f"route add {self.host(number)}/32 dev {device}" for number in numbers]
        _ip(commands, router)
        _run([*_inside(router), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])

    def _connect_node(self, node_id: int, holder: subprocess.Popen[bytes]) -> None:
        host, gateway = self.host(node_id), self.host(ROUTER_NUMBER)
        _ip(
            [
                "link set lo up",
                "link set eth0 up",
                f"address add {host}/32 dev eth0",
                f"address add {self.host(ASIDE_NUMBER + node_id)}/32 dev eth0",
                f"route add {gateway}/32 dev eth0 src {host}",
                f"route add default via {gateway} src {host}",
            ],
            holder,
        )


def namespaces_are_missing() -> str:
    """Says why there can be no `Namespaces`; "" where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in TOOLS:
        if not shutil.which(tool):
            return f"no {tool} here"
    network = Namespaces([1])
    try:
        network.open()
        network.isolate(1)
        network.mend()
    except NamespacesNotAvailableError as error:
        return str(error)
    finally:
        network.close()
    return ""


def _hold_namespace() -> subprocess.Popen[bytes]:
    """Starts the process that a new namespace lives as long as."""
    holder = subprocess.Popen(  # noqa: S603 -- our own arguments
        ["unshare", "--net", "sh", "-c", _HOLD],  # noqa: S607 -- found in PATH
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is for us alone
    )
    if holder.stdout is None or not holder.stdout.readline():
        _, said = holder.communicate()
        raise NamespacesNotAvailableError(f"unshare is not permitted here: {said.decode(errors='replace').strip()}")
    return holder


def _inside(holder: subprocess.Popen[bytes]) -> tuple[str, ...]:
    """Returns what to put before a command that is to run in a namespace; the command keeps its process id."""
    return ("nsenter", f"--net=/proc/{holder.pid}/ns/net")


def _ip(commands: Sequence[str], holder: subprocess.Popen[bytes] | None = None) -> None:
    """Runs `ip` commands, in the namespace of a holder or, without one, here; ends at the first that fails."""
    _run([*(_inside(holder) if holder else ()), "ip", "-batch", "-"], "".join(f"{command}\n" for command in commands))


def _run(command: Sequence[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, check=False, capture_output=True, text=True)  # noqa: S603 -- ours
    if done.returncode:
        raise NamespacesNotAvailableError(f"network namespaces are not possible here: {done.stderr.strip()}")
