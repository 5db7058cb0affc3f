"""The node as the handlers of Kafka's requests use it, in its own messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import force_setattr

from replog.access.authorizer import Authorizer
from replog.access.rights import Rights
from replog.access.token_key import TokenKey
from replog.controller.requests import MutatingClient
from replog.coordinator.offsets.transactions import GetCommitPermit
from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.log.producers.snapshot import ProducerSnapshotEntry
from replog.metadata.image import MetadataImage
from replog.metadata.quotas import QUOTA_NAME_CHARACTERS_MAX
from replog.metadata.records import BrokerEndpoint, ResourceType, SecurityProtocol
from replog.protocol.fetch_sessions import FetchSessions
from replog.protocol.handlers.known_configs import KnownConfig
from replog.protocol.request_time import RequestTime, in_thread
from replog.replication.fetch_positions import FetchPositions
from replog.rpc.messages import FetchPartition, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from replog.rpc.metadata_messages import WaitForMetadata
from replog.rpc.transaction_messages import WriteMarkersRequest, WriteMarkersResponse
from replog.tcp.connection import Caller
from replog.waiting.asks import Asks
from replog.waiting.unread_answers import UnreadAnswer

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

NO_TOPIC_ID = UUID(int=0)
"""The topic id of a topic that is named, or of none."""


NO_TIMEOUT = 0
"""The time-out of requests that name none."""


NAMED_MAX = 10_000
"""Things that one request may name if each of them is some work; as many as the controller takes."""

MESSAGE_CHARACTERS_MAX = 8_000
"""The most characters of an error message in an answer: with four bytes each they fit into the shortest string of the protocol."""

_LEFT_OUT = " [...] "

STEP = 50
"""Things that are answered at a time, before others have their turn."""

AT_ONCE_MAX = 1_000
"""Things up to which a request or an answer is worked on at once, some milliseconds; more are left to a thread."""


COMMIT_OVERLAPPING_BYTES_MAX = 16 << 10
"""Size of the largest commit of offsets that may be in flight beside other requests of its connection."""


class KafkaNode(Protocol):
    """One node, as the handlers see it."""

    @property
    def node_id(self) -> int:
        """The id of the node."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        ...

    @property
    def authorizer(self) -> Authorizer:
        """What decides who may do what; `OPEN` where everybody may do everything."""
        ...

    @property
    def token_key(self) -> TokenKey | None:
        """The key of delegation tokens; None: there are none."""
        ...

    @property
    def image(self) -> MetadataImage:
        """The metadata as the node knows them now."""
        ...

    @property
    def request_timeout_ms(self) -> int:
        """How long a request takes at most that names no time."""
        ...

    @property
    def fetch_sessions(self) -> FetchSessions:
        """The fetch sessions of the node's consumers."""
        ...

    @property
    def creates_missing_topics(self) -> bool:
        """Whether a topic is created because a client asks for it (`auto.create.topics.enable`)."""
        ...

    def controller_id(self) -> int:
        """Returns the active controller; -1: the node knows none."""
        ...

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        """Returns where the clients of a listener reach a broker; None: it has no such listener, or is fenced."""
        ...

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """Returns how clients speak at a listener."""
        ...

    async def call(self, request: Asks[R], timeout_ms: int) -> R:
        """Returns this node's answer to a call.

        Args:
            request: The request.
            timeout_ms: The time within which the caller wants it; 0 or less: `request_timeout_ms`.

        Raises:
            ReplogError: The node refuses, or there was no answer in time.
        """
        ...

    async def change(self, request: Asks[R], timeout_ms: int, rights: Rights) -> R:
        """Returns the active controller's answer to a request, or that of the quorum's leader; errors as of `call`.

        Args:
            request: The request.
            timeout_ms: The time as of `call`.
            rights: Who asks for the change, and by which API: whoever makes it decides whether it may.
        """
        ...

    async def wait_for_metadata(self, request: WaitForMetadata, wait_ms: int, listener: str) -> Sequence[bytes]:
        """Returns the encoded steps to the newest metadata as soon as the client does not know them; none after `wait_ms`.

        They tell the addresses of one listener.

        Raises:
            BrokerNotAvailableError: The node has not read the metadata since its start.
        """
        ...

    async def catch_up(self, timeout_ms: int) -> None:
        """Waits until the metadata that this node knows are those of now, or newer; arguments and errors as of `call`."""
        ...

    async def find_coordinators(self, group_ids: Sequence[str]) -> Sequence[int | ReplogError]:
        """Returns for each group the broker that coordinates it, or why there is none."""
        ...

    async def coordinate(self, group_id: str, request: Any, timeout_ms: int | None) -> Any:
        """Returns the answer of the coordinator of a group, which has to be this broker.

        Args:
            group_id: The group.
            request: One of the requests of `replog.coordinator`.
            timeout_ms: The time in milliseconds within which an answer is wanted; None: without a limit.

        Raises:
            ReplogError: Another broker coordinates the group, or none does, or the coordinator refuses.
        """
        ...

    async def commit_permit(
        self, transactional_id: str, request: GetCommitPermit, *, only_verifies: bool, timeout_ms: int
    ) -> int:
        """Returns the permit with which a producer commits offsets of a group, once its transaction is known to be open.

        Args:
            transactional_id: The transactional id of the producer.
            request: The group, and the producer.
            only_verifies: Whether the client has made the partition of the group part of the transaction; else it becomes one.
            timeout_ms: The time in milliseconds within which each of the coordinators has to answer.

        Raises:
            ReplogError: The coordinator of the group, or that of the transaction, refuses or cannot be asked.
        """
        ...

    async def coordinate_all(self, request: Any, timeout_ms: int) -> list[Any]:
        """Returns the answers of all coordinators of this broker; arguments and errors as of `coordinate`."""
        ...

    async def find_transaction_coordinators(self, transactional_ids: Sequence[str]) -> Sequence[int | ReplogError]:
        """Returns for each transactional id the broker that coordinates it, or why there is none."""
        ...

    async def coordinate_transaction(self, transactional_id: str, request: Any, timeout_ms: int) -> Any:
        """Returns the answer of the coordinator of a transactional id; arguments and errors as of `coordinate`."""
        ...

    async def coordinate_all_transactions(self, request: Any, timeout_ms: int) -> list[Any]:
        """Returns the answers of all coordinators of transactions of this broker; arguments and errors as of `coordinate`."""
        ...

    async def group_place(self, group_id: str) -> tuple[str, int]:
        """Returns the topic and the partition that keep the offsets of a group, whoever leads it.

        Raises:
            InvalidGroupIdError: The group id is empty, or too long.
            CoordinatorNotAvailableError: There is no such topic, and it cannot be made just now.
        """
        ...

    def wall_ms(self) -> int:
        """Returns milliseconds since 1970."""
        ...

    async def producers(
        self, topic_id: UUID, partition_ids: Sequence[int]
    ) -> list[Sequence[ProducerSnapshotEntry] | Failure]:
        """Returns the producers of partitions that this broker leads; a refusal for each partition that it does not lead."""
        ...

    def configs(
        self, resource_type: ResourceType, resource_name: str, own: Mapping[str, str] | None = None
    ) -> tuple[KnownConfig, ...]:
        """Returns every configuration of a topic, of this broker, or, with the type BROKER and the name "", the cluster's.

        Args:
            resource_type: The type of the resource.
            resource_name: The name of the topic, the id of the broker, or "".
            own: The own values of a topic that the metadata may not have yet; None: those in the metadata.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidRequestError: There is no such broker, or it is another one.
        """
        ...

    async def produce(self, request: ProduceRequest, caller: object = None) -> ProduceResponse:
        """Appends, and returns the answer when it is due; with acks=0 that is the answer of the append.

        Args:
            request: The request.
            caller: The client, an object for each; the requests of one are taken up in order, those of several in turns.
        """
        ...

    async def write_markers(self, request: WriteMarkersRequest, timeout_ms: int) -> WriteMarkersResponse:
        """Writes the ends of transactions into partitions that this broker leads, and waits until they have committed.

        Args:
            request: The markers.
            timeout_ms: How long each may take to commit.

        Raises:
            InvalidRequestError: A marker names no producer.
        """
        ...

    def open_answer(self) -> UnreadAnswer:
        """Returns the share of an answer in the memory for records; the sender of the answer closes it."""
        ...

    async def fetch(
        self,
        request: FetchRequest,
        unread: UnreadAnswer | None,
        session: FetchPositions[FetchPartition] | None = None,
    ) -> FetchResponse:
        """Reads, or waits until there is something to read.

        Args:
            request: The request.
            unread: The share of the answer, which holds its bytes from here on; None: its room has no limit of this kind.
            session: The positions of the session that it is a fetch of, whose answer names news only; None: it is of none.
        """
        ...


class ProduceTurn:
    """The place of a request among those of its connection that are taken up in several turns of the loop.

    Whoever reads the request may take it before the handler does; it is given back once.

    Args:
        lock: The lock of the connection, whose waiters come in the order in which they began.

    Attributes:
        is_taken: Whether those behind it wait.
    """

    __slots__ = ("_lock", "is_taken")

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self.is_taken = False

    async def take(self) -> None:
        """Waits until those before it are taken up; at once if it has been taken."""
        if not self.is_taken:
            await self._lock.acquire()
            self.is_taken = True

    def give_back(self) -> None:
        """Lets the next one begin; does nothing if it is not taken."""
        if self.is_taken:
            self.is_taken = False
            self._lock.release()


class Call(Struct, frozen=True):
    """The context of a request.

    Attributes:
        version: The version of the API that the client chose.
        client_id: The name that the client gives itself.
        caller: The client, the same object for all requests of a connection.
        rights: What the client may do.
        unread: The share of the answer in the memory for records; None: it has none in it.
        turn: The place of the request among those of its connection; None: it has none yet.
        request_time: The time that the request takes; None: it is not measured.
    """

    version: int
    client_id: str
    caller: Caller
    rights: Rights
    unread: UnreadAnswer | None = None
    turn: ProduceTurn | None = None
    request_time: RequestTime | None = None

    @property
    def listener(self) -> str:
        """The name of the listener by which the client came: it is told the addresses of brokers there."""
        return self.caller.listener

    @property
    def client_host(self) -> str:
        """The address of the client in the form in which Kafka shows members; "" if it is not known."""
        return f"/{self.caller.address}" if self.caller.address else ""


def mutating(call: Call, strict_from: int) -> MutatingClient:
    """Returns the client of a request that creates or deletes partitions, as the controller counts it.

    Args:
        call: The context of the request.
        strict_from: The first version of the API in which a quota refuses.
    """
    client_id = call.client_id[: QUOTA_NAME_CHARACTERS_MAX + 1]  # a longer name has no quota of its own
    user = call.caller.principal.name[: QUOTA_NAME_CHARACTERS_MAX + 1]
    return MutatingClient(user, client_id, call.version >= strict_from)


class Failure(Struct, frozen=True):
    """Why a whole request failed; the message as long as an answer can have it (`fitting`)."""

    code: ErrorCode
    message: str

    def __post_init__(self) -> None:
        force_setattr(self, "message", fitting(self.message))


def text(message: str) -> str | None:
    """Returns a message as Kafka has it: null if it is empty, and no longer than fits into an answer."""
    return fitting(message) or None


def own_text(code: ErrorCode, message: str) -> str:
    """Returns what a message says beside its code: nothing where it is only the name of that."""
    return "" if message == code.name else fitting(message)


def fitting(message: str) -> str:
    """Returns a message, without its middle if it is too long for a string of an older version, which has 32,767 bytes.

    It repeats names that a client has sent, which may have that length.
    """
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    end = MESSAGE_CHARACTERS_MAX // 4
    return f"{message[: MESSAGE_CHARACTERS_MAX - end - len(_LEFT_OUT)]}{_LEFT_OUT}{message[-end:]}"


def require_few(count: int, what: str, error: type[ReplogError] = InvalidRequestError) -> None:
    """Refuses a request that names more than `NAMED_MAX` things.

    Args:
        count: The number of things.
        what: The kind of the things, in the plural.
        error: The class of the error; PolicyViolationError for requests that the controller decides, as in Kafka.

    Raises:
        ReplogError: There are more.
    """
    if count > NAMED_MAX:
        raise error(f"one request names at most {NAMED_MAX:,} {what}, not {count:,}; ask in several requests")


async def beside(count: int, function: Callable[P, T], /, *args: P.args, **others: P.kwargs) -> T:
    """Calls a function that needs only its arguments; for many things, in a thread beside the loop.

    Args:
        count: The number of things that it is about, or more.
        function: The function; its error is raised.
        args: Its arguments.
        others: Its arguments by name.
    """
    return function(*args, **others) if count <= AT_ONCE_MAX else await in_thread(function, *args, **others)


async def in_steps(things: Iterable[T], answer: Callable[[T], A]) -> list[A]:
    """Returns the answers to things, in order; the node does other work in between.

    Args:
        things: The things that are asked for.
        answer: The function that answers one of them.
    """
    answers: list[A] = []
    for thing in things:
        answers.append(answer(thing))
        if len(answers) % STEP == 0:
            await asyncio.sleep(0)
    return answers
