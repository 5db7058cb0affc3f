"""Arguments that a client does not have: what to use instead of a setting of Kafka's clients, or of a misspelt one, and the right call.

Why: Kafka's users bring their settings along.  One that is silently ignored would be a promise that nobody keeps, and an
unexpected keyword by itself says nothing of what holds here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from replog.errors import ConfigError

_BROKERS: Final = "the coordinator says it to its members: set {} of the brokers"
_PAUSES: Final = "the pauses before another attempt are 100 ms to 500 ms and cannot be set"
_SECURITY: Final = "use security: Security.tls, scram, plain, oauth, or Security.from_settings of Kafka's names (docs/SECURITY_CLIENTS.md)"
_NO_SOCKETS: Final = "sockets have the buffers that the system gives them"
_CODEC: Final = "use {0}: a type such as str, or a codec (docs/RECORDS.md)"

ANY: Final = "client"

INSTEAD: Final[Mapping[str, Mapping[str, str]]] = {
    ANY: {
        "allow_auto_create_topics": "create topics with Admin.create_topic",
        "api_version": "clients and brokers agree on a version by themselves",
        "metadata_max_age_ms": "brokers tell clients of changes as they happen",
        "receive_buffer_bytes": _NO_SOCKETS,
        "reconnect_backoff_max_ms": _PAUSES,
        "reconnect_backoff_ms": _PAUSES,
        "retries": "what may be tried again is, until its time-out is over",
        "retry_backoff_max_ms": _PAUSES,
        "retry_backoff_ms": _PAUSES,
        "security_protocol": _SECURITY,
        "send_buffer_bytes": _NO_SOCKETS,
    },
    "Admin": {
        "default_api_timeout_ms": "use timeout_ms",
    },
    "Consumer": {
        "check_crcs": "checksums are always checked",
        "consumer_timeout_ms": "give timeout_ms to poll",
        "default_api_timeout_ms": "give timeout_ms to the call",
        "group_protocol": "a group is joined by KIP-848, and by the classic protocol where that is all that it has",
        "heartbeat_interval_ms": _BROKERS.format("group.consumer.heartbeat.interval.ms"),
        "isolation_level": "only records of committed transactions are read, as with read_committed",
        "key_deserializer": _CODEC.format("key"),
        "max_poll_records": "give max_records to poll",
        "partition_assignment_strategy": "the coordinator assigns partitions; where members do, they agree on range or roundrobin",
        "session_timeout_ms": _BROKERS.format("group.consumer.session.timeout.ms"),
        "value_deserializer": _CODEC.format("value"),
    },
    "Producer": {
        "batch_size": "use batch_size_bytes",
        "buffer_memory": "use buffer_memory_bytes",
        "compression_codec": "use compression",
        "compression_type": "use compression",
        "key_serializer": _CODEC.format("key"),
        "max_block_ms": "send waits until there is room: put asyncio.timeout around it",
        "max_in_flight_requests_per_connection": (
            "use max_in_flight_per_partition, 1 to 5: the batches of a partition that are sent and not acknowledged"
        ),
        "max_request_size": "use max_request_bytes",
        "retries": "records are sent again until delivery_timeout_ms is over: set that",
        "value_serializer": _CODEC.format("value"),
    },
    "Worker": {
        "group_id": "use group",
        "key_deserializer": _CODEC.format("key"),
        "value_deserializer": _CODEC.format("value"),
    },
}
"""What to do about settings of Kafka's clients, by the kind of client, without "Sync", and of any."""


CALLS: Final[Mapping[str, str]] = {
    "Admin": "{0}(servers, timeout_ms=10_000)",
    "Consumer": '{0}(servers, group_id="readers") and then {1}consumer.subscribe(["orders"])',
    "Producer": '{0}(servers, acks="all") and then {1}producer.send("orders", b"two coffees")',
    "Worker": '{0}(handler, "orders", group="readers", bootstrap_servers=servers)',
}
"""The right call, by the kind of client: {0} is its class, {1} "await " where its methods are waited for."""


def refuse_unknown(client: type, unknown: Mapping[str, object], misplaced: Sequence[object]) -> None:
    """Refuses arguments that a client does not have.

    Args:
        client: The class of the client.
        unknown: What was given by a name that none of its settings has.
        misplaced: What was given without a name behind the arguments that need none.

    Raises:
        ConfigError: There is one; the text says what to use instead.
    """
    if misplaced:
        name, own = client.__name__, _own(client)
        call = CALLS[own.removeprefix("Sync")].format(name, "" if own.startswith("Sync") else "await ")
        raise ConfigError(
            "arguments",
            misplaced[0],
            f"{name} takes no further argument without its name, such as {misplaced[0]!r:.80}: write {call}",
        )
    for name, value in unknown.items():
        raise ConfigError(name, value, f"{client.__name__} has no setting {name}: {_advice(client, name)}")


def _own(client: type) -> str:
    """Returns the name of the class of ours that a client is of, also where somebody has made a subclass."""
    return next(each.__name__ for each in client.__mro__ if each.__name__.removeprefix("Sync") in CALLS)


def _advice(client: type, name: str) -> str:
    import difflib
    import inspect

    known = [each for each in inspect.signature(client).parameters if each not in {"misplaced", "unknown"}]
    plain = name.lower().replace(".", "_").replace("-", "_")
    if plain in known:
        return f"write it {plain}"
    if plain.startswith(("sasl_", "ssl_")):
        return _SECURITY
    own = _own(client).removeprefix("Sync")
    for kind in (own, ANY, *INSTEAD):
        if (advice := INSTEAD[kind].get(plain)) is not None:
            return advice if kind in {own, ANY} else f"it is of a {kind}"
    near = difflib.get_close_matches(plain, known, n=1)
    return f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
