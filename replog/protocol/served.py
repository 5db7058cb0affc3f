"""The table of the APIs that are served.  An API that is not in it is not advertised; a request for it ends the connection.

A new API is a row here, functions in `handlers/`: one that answers, one that answers a request which failed as a whole where that
takes more than a code (`refusal`), and a row in `rights/table.py`, without which it cannot be served.
An API's messages and functions are loaded with its first request: forty modules, of which most clients ask for a few.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from msgspec import Struct

from replog.errors import InvariantViolationError
from replog.protocol.handlers.node import COMMIT_OVERLAPPING_BYTES_MAX, Call, Failure, KafkaNode
from replog.protocol.private import PRIVATE_APIS, PrivateApi
from replog.protocol.private_answers import handler, refuse_private
from replog.protocol.rights.needs import Right
from replog.protocol.rights.table import RIGHTS
from replog.rpc.request_limits import MAX_PARTITIONS
from replog.wire.messages.apis import APIS
from replog.wire.primitives import ELEMENTS_MAX, Reader, Writer

if TYPE_CHECKING:
    from replog.wire.messages.metadata import MetadataResponse

BATCH_ELEMENTS_MAX = 2 * MAX_PARTITIONS
"""The most elements of a Produce: it is read and begun in one piece, so that none overtakes another.  As many as partitions may be,
each in a topic of its own.  Of fewer topics a request with a few more partitions has an answer that says so."""

READ_AT_ONCE_BYTES = 16 << 10
"""Size up to which a request is read at once; a larger one, with hundreds of names, is left to a thread unless it may overlap."""


class Request(Protocol):
    """The class of a request, as it is generated."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def read(cls, r: Reader, version: int) -> Any: ...


class Response(Protocol):
    """The answer to a request, as it is generated."""

    def write(self, w: Writer, version: int) -> None: ...


class Handling(Struct, frozen=True):
    """What an API needs to answer.

    Attributes:
        request: The class of its requests, or one of our own APIs.
        handle: The function that answers.  It may raise whatever is a `ReplogError`.
        refuse: The function that answers where the request failed as a whole.
    """

    request: type[Request] | PrivateApi
    handle: Callable[[KafkaNode, Any, Call], Awaitable[Response]]
    refuse: Callable[[Any, Failure], Response]


class Served(Struct, frozen=True):
    """One API.

    Attributes:
        key: The key of the API.
        name: The name of the API, as Kafka's documentation has it.
        versions: The versions that are served.
        flexible_from: The first version with tagged fields.
        load: The function that returns what it needs to answer, loaded when it is called first.
        right: What a client needs that asks it.
        advertised_from: The first version that is advertised, where that is not the first that is served.
        overlapping_bytes_max: The size of the largest request that may be in flight beside others of its connection: it
            takes its place among them before it waits for anything, so that none overtakes another.  0: none may.
        is_repeated: The function that says of an answer whether all equal requests get it, until the metadata change; None:
            no answer is repeated.
        elements_max: The most elements that the arrays of a request may have together; a request with more ends the
            connection.
        has_records: Whether its answers have records, and a share of the memory for those.
        throttle_time_from: The first version whose answers begin with the time that a client has to wait, where answers are repeated.
    """

    key: int
    name: str
    versions: range
    flexible_from: int
    load: Callable[[], Handling]
    right: Right
    advertised_from: int | None = None
    overlapping_bytes_max: int = 0
    is_repeated: Callable[[Any], bool] | None = None
    elements_max: int = ELEMENTS_MAX
    has_records: bool = False
    throttle_time_from: int | None = None

    @property
    def advertised(self) -> range:
        """The versions that clients are told."""
        return self.versions if self.advertised_from is None else range(self.advertised_from, self.versions.stop)


def _kafka(api: str, module: str, function: str = "", *, last_version: int | None = None, **others: Any) -> Served:
    """Returns an API of Kafka.

    Args:
        api: The name of the API in `APIS`, which is that of the module of its messages.
        module: The module of `handlers` that has its functions.
        function: The name of the one that answers, "refuse_" before it that of the other, if there is one; "": `api`.
        last_version: The last version that is served, where Kafka has later ones; None: Kafka's.
        others: What else is in the row.
    """
    known = APIS[api]
    versions = known.versions if last_version is None else range(known.versions.start, last_version + 1)
    load = partial(_loaded, api, module, function or api)
    return Served(known.key, known.name, versions, known.flexible_from, load, RIGHTS[known.key], **others)


@cache
def _loaded(api: str, module: str, function: str) -> Handling:
    messages = import_module(f"replog.wire.messages.{api}")
    functions = import_module(f"replog.protocol.handlers.{module}")
    name = APIS[api].name
    refuse = getattr(functions, f"refuse_{function}", None) or refusal(getattr(messages, f"{name}Response"))
    return Handling(getattr(messages, f"{name}Request"), getattr(functions, function), refuse)


def refusal(response: type[Any]) -> Callable[[object, Failure], Response]:
    """Returns the function that answers where a request failed as a whole: with a code, and the message where there is a field for it.

    Raises:
        InvariantViolationError: The answer as a whole has no code, so its API needs a function of its own.
    """
    if not hasattr(response, "error_code"):
        raise InvariantViolationError(f"{response.__name__} has no code, so its handlers need a function that refuses")
    has_message = hasattr(response, "error_message")

    def refuse(_request: object, failure: Failure) -> Response:
        told = {"error_message": failure.message} if has_message else {}
        answer: Response = response(error_code=failure.code, **told)
        return answer

    return refuse


def _private(api: PrivateApi) -> Served:
    handling = Handling(api, handler(api), refuse_private)
    name = api.__name__.removesuffix("Request")
    return Served(api.API_KEY, name, api.VERSIONS, api.FLEXIBLE_FROM, lambda: handling, RIGHTS[api.API_KEY])


def _has_no_error(response: MetadataResponse) -> bool:
    """Whether all that was asked for exists: only then has the request started nothing."""
    return not response.error_code and not any(topic.error_code for topic in response.topics)


def load_all() -> None:
    """Loads what every API needs to answer."""
    for api in SERVED:
        api.load()


OFFSETS_LAST_VERSION: Final = 9
"""The last version of OffsetCommit and OffsetFetch that is served: the next one names topics by their ids."""

PRODUCER_ID_LAST_VERSION: Final = 5
"""The last version of InitProducerId that is served; later ones are for transactions of two phases (KIP-939)."""

SERVED: tuple[Served, ...] = (
    # librdkafka compresses no more if the lowest version of Produce is above 0 (KAFKA-18659)
    _kafka(
        "produce",
        "produce",
        advertised_from=0,
        overlapping_bytes_max=sys.maxsize,
        elements_max=BATCH_ELEMENTS_MAX,
    ),
    _kafka("fetch", "fetch", has_records=True),
    _kafka("list_offsets", "offsets"),
    _kafka("offset_for_leader_epoch", "offsets"),
    _kafka("init_producer_id", "producer_ids", last_version=PRODUCER_ID_LAST_VERSION),
    _kafka("metadata", "metadata", is_repeated=_has_no_error, throttle_time_from=3),
    _kafka("create_topics", "topics"),
    _kafka("delete_topics", "topics"),
    _kafka("create_partitions", "topics"),
    _kafka("delete_records", "topics"),
    _kafka("describe_topic_partitions", "topic_partitions", "describe"),
    _kafka("describe_configs", "configs"),
    _kafka("incremental_alter_configs", "configs"),
    _kafka("alter_configs", "configs"),
    _kafka("list_config_resources", "configs"),
    _kafka("find_coordinator", "coordinators"),
    _kafka(
        "offset_commit",
        "groups.group_offsets",
        last_version=OFFSETS_LAST_VERSION,
        overlapping_bytes_max=COMMIT_OVERLAPPING_BYTES_MAX,
    ),
    _kafka("offset_fetch", "groups.group_offsets", last_version=OFFSETS_LAST_VERSION),
    _kafka("txn_offset_commit", "groups.group_transactions"),
    _kafka("offset_delete", "groups.group_offsets"),
    _kafka("delete_groups", "groups.groups"),
    _kafka("list_groups", "groups.groups"),
    _kafka("describe_groups", "groups.groups"),
    _kafka("consumer_group_describe", "groups.consumer_groups", "describe"),
    _kafka("consumer_group_heartbeat", "groups.consumer_groups", "heartbeat"),
    _kafka("join_group", "groups.group_members"),
    _kafka("sync_group", "groups.group_members"),
    _kafka("heartbeat", "groups.group_members"),
    _kafka("leave_group", "groups.group_members"),
    _kafka("describe_cluster", "cluster"),
    _kafka("unregister_broker", "cluster"),
    _kafka("update_features", "cluster"),
    _kafka("describe_user_scram_credentials", "access.users"),
    _kafka("alter_user_scram_credentials", "access.users"),
    *(
        _kafka(f"{step}_delegation_token", "access.delegation_tokens")
        for step in ("create", "renew", "expire", "describe")
    ),
    _kafka("sasl_handshake", "access.sasl"),
    _kafka("sasl_authenticate", "access.sasl"),
    _kafka("elect_leaders", "reassignments"),
    _kafka("alter_partition_reassignments", "reassignments", "alter"),
    _kafka("list_partition_reassignments", "reassignments", "list_moving"),
    _kafka("describe_quorum", "quorum"),
    _kafka("add_raft_voter", "quorum"),
    _kafka("remove_raft_voter", "quorum"),
    _kafka("describe_acls", "access.acls"),
    _kafka("create_acls", "access.acls"),
    _kafka("delete_acls", "access.acls"),
    _kafka("describe_log_dirs", "log_dirs"),
    _kafka("alter_replica_log_dirs", "log_dirs"),
    _kafka("describe_producers", "producers"),
    _kafka("add_partitions_to_txn", "transactions"),
    _kafka("add_offsets_to_txn", "transactions"),
    _kafka("end_txn", "transactions"),
    _kafka("describe_transactions", "transactions"),
    _kafka("list_transactions", "transactions"),
    _kafka("write_txn_markers", "write_markers"),
    _kafka("describe_client_quotas", "access.quotas"),
    _kafka("alter_client_quotas", "access.quotas"),
    *map(_private, PRIVATE_APIS.values()),
)
"""All but ApiVersions, which tells of them (`KafkaServer`)."""
