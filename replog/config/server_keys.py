"""Every configuration key of a node once, with Kafka's name, type, unit, range, default and meaning.

Why here: reading a file, command-line overrides, error messages and `docs/CONFIGURATION.md` are all made from the
fields of `ServerKeys`, of which `LogKeys` and, its base, `GroupKeys` are parts.  A key's name is the field's name with dots for underscores.  `Differs` marks a default that
is not Kafka's and says why (Kafka's defaults: docs/KAFKA.md 2).  What may be set for a topic or while a cluster runs stands in
`replog.metadata.config_keys`, too; what a core is told of a key, in `replog.broker.node.core_settings`.

The three modules of keys do without `from __future__ import annotations`: the table is made of the annotations, and to evaluate
a hundred texts would take some milliseconds of every start.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated

from replog.config.keys import Differs, Key, keys_of
from replog.config.kinds import (
    DAY_MS,
    GIB,
    HOUR_MS,
    INT_MAX,
    KIB,
    LONG_MAX,
    MIB,
    Choice,
    Choices,
    Endpoint,
    Flag,
    ListenerProtocol,
    ListenerProtocols,
    NamedEndpoint,
    NamedEndpoints,
    Number,
    OneEndpoint,
    Paths,
    Text,
    VoterAddress,
    Voters,
    milliseconds,
    size_bytes,
)
from replog.config.log_keys import LogKeys
from replog.config.log_output import LoggingFormat
from replog.metadata.config_keys import MessageTimestampType
from replog.metadata.records import CLIENT_LISTENER, SecurityProtocol
from replog.tcp.tls_settings import ClientAuth

LISTENERS_MAX = 16
"""The most listeners of a node: as many endpoints as a registration may have."""


class ProcessRole(Enum):
    """What a node does: keep partitions, take part in the metadata quorum, or both."""

    BROKER = "broker"
    CONTROLLER = "controller"


class InterBrokerTransport(Enum):
    """What nodes meet over (`inter.broker.transport`)."""

    GRPC = "grpc"
    TCP = "tcp"


class ReplicaSelector(Enum):
    """Which replicas serve consumers (`replica.selector`)."""

    LEADER = "leader"
    RACK_AWARE = "rack-aware"


class ServerKeys(LogKeys, frozen=True, kw_only=True):
    """The keys as fields, in the order of the page, those of the parts behind them.  `ServerConfig` is what checks their values."""

    # ---- who and where ----------------------------------------------------------------------------------------------

    node_id: Annotated[int, Number(0, INT_MAX)]
    """Number of this node, unique in the cluster and the same after every restart.  It is written into each log
    directory; a directory of another node is refused."""

    log_dirs: Annotated[
        tuple[str, ...],
        Paths("list of folders", count_max=64),
        Differs('"/tmp/kafka-logs"', "what lies under /tmp does not survive a reboot, so the folder is never guessed"),
    ]
    """Folders of this node's data, one for each disk; a string may name several, with commas between them.  New partitions
    go to the folder with the fewest.  The first one holds the metadata log: without it the node stops, while another that
    fails takes only its own partitions offline.  They are locked while the node runs and never shared between nodes.
    A relative name counts from the folder of the file, elsewhere from the working directory.  `log.dir` names a single one."""

    num_recovery_threads_per_data_dir: Annotated[int, Number(1, 64)] = 2
    """Threads for each folder that check its logs at a start and close them at a stop."""

    log_dir_warn_free_bytes: Annotated[
        int, size_bytes(0, LONG_MAX, (0, "never")), Differs("no such key", "a full disk should not come as a surprise")
    ] = GIB
    """Free bytes of a data folder's disk below which the node warns; at most a tenth of the disk."""

    log_dir_read_only_free_bytes: Annotated[
        int,
        size_bytes(0, LONG_MAX, (0, "never")),
        Differs("no such key; the broker fails", "a full disk is a state that ends by itself when there is room"),
    ] = 256 * MIB
    """Free bytes below which nothing is appended to a data folder; at most a twentieth of the disk.  Reads, retention and
    deletions go on; producers are refused with an error that they retry, followers wait.  Too small: indexes and
    checkpoints of what is open no longer fit."""

    log_dir_reserve_bytes: Annotated[
        int,
        size_bytes(0, LONG_MAX, (0, "none")),
        Differs("no such key", "checkpoints need room when all else is used up"),
    ] = 16 * MIB
    """Size of the file `.reserve` in each data folder, which is given back to a full disk so that checkpoints can be
    written; at most a fiftieth of the disk."""

    log_dir_space_check_interval_ms: Annotated[
        int, milliseconds(10, HOUR_MS), Differs("no such key", "how soon a freed disk is used again")
    ] = 1_000
    """How often the disks of the data folders are looked at: whether they are there, and their free bytes."""

    process_roles: Annotated[
        tuple[ProcessRole, ...],
        Choices(ProcessRole, '"broker", "controller" or both'),
        Differs("required", "one node alone runs without further settings"),
    ] = (ProcessRole.BROKER, ProcessRole.CONTROLLER)
    """What this node does: keep partitions (broker), vote on metadata (controller), or both."""

    cluster_id: Annotated[str | None, Text("[A-Za-z0-9_-]{1,64}", "1 to 64 of A-Z a-z 0-9 _ -")] = None
    """Identity of the cluster.  Not set: taken from meta.properties in the log directory.  Set: a directory of another
    cluster is refused, so that two clusters never mix."""

    listeners: Annotated[
        tuple[NamedEndpoint, ...],
        NamedEndpoints("list of NAME://host:port, port 0 to 65,535", count_max=LISTENERS_MAX),
        Differs('"PLAINTEXT://:9092"', "until somebody says otherwise, only this machine may connect"),
    ] = (NamedEndpoint(CLIENT_LISTENER, Endpoint("127.0.0.1", 9092)),)
    """The addresses at which clients are served, over TCP: our own, and Kafka's in Kafka's protocol.  host:port alone is that of the
    listener PLAINTEXT.  A client is told the addresses of the listener by which it came.  Port 0 takes a free port, which the log
    tells.  The console comes by the first one.  Anything but loopback needs SASL_SSL, SSL with ssl.client.auth = required, or allow.insecure."""

    listener_security_protocol_map: Annotated[
        tuple[ListenerProtocol, ...],
        ListenerProtocols(
            "list of NAME:PROTOCOL, a protocol PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", count_max=LISTENERS_MAX
        ),
    ] = tuple(ListenerProtocol(protocol.name, protocol) for protocol in SecurityProtocol)
    """How clients speak at each listener of `listeners`: PLAINTEXT, or TLS (SSL), where a certificate may say who they are;
    with SASL_ in front they log in (sasl.enabled.mechanisms), in plain text or over TLS."""

    advertised_listeners: Annotated[
        tuple[NamedEndpoint, ...],
        NamedEndpoints("list of NAME://host:port, port 1 to 65,535", may_be_empty=True, count_max=LISTENERS_MAX),
    ] = ()
    """The addresses told to clients, by every broker, each of a listener of `listeners`.  Of a listener that is not named: the
    bound one.  Needed where that cannot be connected to (0.0.0.0, address translation)."""

    inter_broker_listener: Annotated[
        Endpoint | None,
        OneEndpoint(),
        Differs("inter.broker.listener.name, one of `listeners`", "nodes and clients come to ports of their own"),
    ] = None
    """The address at which other nodes reach this one, over what inter.broker.transport says: followers, the quorum, controllers.  Not
    set: the host of the first of listeners, and the port after its port; where that is 0, a free one, which suits tests and single
    nodes: a quorum voter needs a fixed one.  Anything but loopback needs security.inter.broker.protocol = "SSL", or allow.insecure."""

    inter_broker_advertised_listener: Annotated[
        Endpoint | None,
        OneEndpoint(),
        Differs("no such key; it is one of `advertised.listeners`", "as inter.broker.listener"),
    ] = None
    """The address told to other nodes.  Not set: the bound port at the host of advertised.listeners, or at the bound one."""

    inter_broker_transport: Annotated[
        InterBrokerTransport, Choice(InterBrokerTransport), Differs("no such key", "Kafka has one way")
    ] = InterBrokerTransport.GRPC
    """What nodes meet over: gRPC, or plain TCP as clients come, which is quicker.  The same on all nodes: one that has the other
    is not heard, so that a cluster changes with all of its nodes stopped."""

    kafka_fetch_sessions: Annotated[
        int,
        Number(0, 100_000),
        Differs("max.incremental.fetch.session.cache.slots", "the name says whose they are"),
    ] = 1_000
    """How many consumers, and watches of offsets, are told only what is new to them, instead of all partitions by each answer.  One
    that has not fetched for two minutes makes room; where there is none, more bytes are sent."""

    broker_rack: Annotated[str | None, Text(r"[^\x00-\x1f]{1,255}", "1 to 255 printable characters")] = None
    """Rack or zone of this broker.  Replicas of a partition are spread over racks."""

    replica_selector: Annotated[
        ReplicaSelector,
        Choice(ReplicaSelector),
        Differs("replica.selector.class, a Java class", "there are no classes here"),
    ] = ReplicaSelector.LEADER
    """The replicas that serve consumers.  leader: only leaders.  rack-aware: in-sync followers too, so that a consumer with client.rack
    reads from a replica in its rack."""

    direct_reads_enable: Annotated[bool, Flag(), Differs("no such key", "Kafka's readers never see its files")] = True
    """true: a reader of committed records on the same machine (a task of Spark) is told where they stand in the files, and
    reads them without the broker where the file permissions let it.  false: all records are fetched."""

    allow_insecure: Annotated[bool, Flag(), Differs("no such key", "a safety catch of ours")] = False
    """true: listeners that ask nobody who they are, or speak plain text, may be reachable from other machines: PLAINTEXT, SASL_PLAINTEXT, SSL without
    ssl.client.auth = required.  Whoever can connect can then read, write and delete everything."""

    # ---- topics -----------------------------------------------------------------------------------------------------

    auto_create_topics_enable: Annotated[bool, Flag(), Differs("true", "a misspelt name is no wish for a topic")] = (
        False
    )
    """true: a topic that a Kafka client asks for, and that is not there, is created with the two defaults below, unless the
    client forbids it.  Our own clients never ask for it."""

    num_partitions: Annotated[int, Number(1, 10_000)] = 1
    """Partitions of a topic created without a number.  More spread the work and order less: order holds per partition."""

    default_replication_factor: Annotated[int, Number(1, 32_767)] = 1
    """Replicas of a topic created without a number.  1 loses the data with the machine; 3 survives one loss while
    writing goes on."""

    min_insync_replicas: Annotated[int, Number(1, 32_767)] = 1
    """In-sync replicas without which acks=all writes are refused and nothing new becomes visible.  2 with 3 replicas
    is usual; equal to the replication factor means that any stopped broker stops writes.  A new cluster takes it from
    its first controller; later it is changed in the cluster."""

    message_max_bytes: Annotated[int, size_bytes(256, 32 * MIB)] = MIB + 12
    """Largest record batch that is accepted.  Larger batches cost memory on every broker that holds one."""

    log_message_timestamp_type: Annotated[MessageTimestampType, Choice(MessageTimestampType)] = (
        MessageTimestampType.CREATE_TIME
    )
    """Whose clock readers see on records.  CreateTime: the producer's.  LogAppendTime: the leader's when it appends; each
    batch is then copied once more."""

    log_message_timestamp_before_max_ms: Annotated[int, milliseconds(0, LONG_MAX)] = LONG_MAX
    """How far before the leader's clock a producer's timestamp may lie.  The default is no limit; any other value makes
    the leader look into every batch, decompressing it."""

    log_message_timestamp_after_max_ms: Annotated[int, milliseconds(0, LONG_MAX)] = HOUR_MS
    """How far after the leader's clock a producer's timestamp may lie.  A timestamp from the future keeps its segment from
    being deleted by age."""

    unclean_leader_election_enable: Annotated[bool, Flag()] = False
    """true: a replica that misses acknowledged records may lead when no other is left.  Available again, with loss.  A new
    cluster takes it from its first controller; later it is changed in the cluster."""

    # ---- replication ------------------------------------------------------------------------------------------------

    replica_high_watermark_checkpoint_interval_ms: Annotated[int, milliseconds(1, HOUR_MS)] = 5_000
    """How often high watermarks are written."""

    replica_lag_time_max_ms: Annotated[
        int,
        milliseconds(1, DAY_MS),
        Differs("30,000", "a stuck follower holds back acks=all for this long, and 10 s is ample on a healthy network"),
    ] = 10_000
    """A follower that has not caught up with its leader for this long leaves the ISR.  It is looked for every half of it.
    Too small: it comes and goes with every pause.  Too large: acks=all waits long for a dead follower."""

    replica_fetch_wait_max_ms: Annotated[int, milliseconds(1, 60_000)] = 500
    """How long a leader holds a follower's fetch open when there is nothing new.  At most replica.lag.time.max.ms."""

    replica_fetch_min_bytes: Annotated[int, size_bytes(1, INT_MAX)] = 1
    """Bytes for which a leader waits, at most replica.fetch.wait.max.ms, before it answers a follower's fetch.  Above 1
    it delays acks=all."""

    replica_fetch_max_bytes: Annotated[int, size_bytes(KIB, 32 * MIB)] = MIB
    """Bytes of one partition in one fetch answer.  A larger single batch is still sent whole."""

    replica_fetch_response_max_bytes: Annotated[int, size_bytes(KIB, 32 * MIB)] = 10 * MIB
    """Bytes of all partitions in one fetch answer.  Each connected follower can hold this much memory."""

    replica_fetch_backoff_ms: Annotated[int, milliseconds(1, 60_000)] = 1_000
    """Longest pause of a follower after an error of a partition before it fetches that partition again; the first pause
    is 20 ms and doubles."""

    # ---- brokers and controller -------------------------------------------------------------------------------------

    broker_heartbeat_interval_ms: Annotated[int, milliseconds(1, 600_000)] = 2_000
    """How often a broker reports to the controller."""

    broker_session_timeout_ms: Annotated[int, milliseconds(2, 3_600_000)] = 9_000
    """Silence after which the controller fences a broker and moves its leaderships, and after which that broker itself
    refuses requests.  Too small: a pause is a failover.  Too large: a dead leader stops its partitions for long."""

    initial_broker_registration_timeout_ms: Annotated[int, milliseconds(1, HOUR_MS)] = 60_000
    """How long a starting broker tries to register before it gives up and stops."""

    controller_quorum_voters: Annotated[
        tuple[VoterAddress, ...],
        Voters("list of id@host:port", may_be_empty=True, count_max=9),
    ] = ()
    """The voters a new metadata quorum begins with, the same list on every node; 3 survive the loss of one.  Not set: this
    node is the only voter.  Once all of them have been heard, the voters stand in the metadata log and are changed by
    `replog quorum add-voter` and `remove-voter`; this list then says where the quorum is looked for.  A controller that it
    does not name follows until it is made a voter."""

    auto_leader_rebalance_enable: Annotated[bool, Flag()] = True
    """true: leaderships move back to the first replica of a partition by themselves once it is in sync again."""

    leader_imbalance_check_interval_seconds: Annotated[int, Number(1, INT_MAX)] = 300
    """How often the active controller looks for such leaderships, in seconds."""

    metadata_max_idle_interval_ms: Annotated[
        int,
        milliseconds(0, INT_MAX, (0, "off")),
        Differs("500", "an idle cluster should not write to its disks"),
    ] = 0
    """Silence after which the active controller writes a record that changes nothing, so that progress of the metadata log
    can be watched from outside."""

    metadata_log_segment_bytes: Annotated[int, size_bytes(8 * MIB, INT_MAX)] = GIB
    """Size at which a segment of the metadata log is closed.  What snapshots make superfluous is deleted by segments."""

    metadata_log_max_record_bytes_between_snapshots: Annotated[int, size_bytes(1, LONG_MAX)] = 20 * MIB
    """Metadata records after which a node writes a snapshot.  Larger means a longer log to read at a start; smaller means
    that all metadata is written more often."""

    metadata_log_max_snapshot_interval_ms: Annotated[int, milliseconds(1, LONG_MAX)] = HOUR_MS
    """Age of the newest snapshot at which another is written, if anything has changed since."""

    metadata_max_retention_bytes: Annotated[int, size_bytes(-1, LONG_MAX, (-1, "no limit"))] = 100 * MIB
    """Metadata log and snapshots together above which the oldest snapshot goes, with the log it makes superfluous.  The
    newest snapshot and the log behind it always stay."""

    metadata_max_retention_ms: Annotated[int, milliseconds(-1, LONG_MAX, (-1, "for ever"))] = 7 * DAY_MS
    """Age of its last record at which the oldest snapshot goes; the newest always stays."""

    controller_quorum_append_linger_ms: Annotated[
        int,
        milliseconds(0, 1_000),
        Differs("25", "requests that come together share a batch anyway; a linger is added to every change"),
    ] = 0
    """How long the active controller gathers records before it appends them.  0: for one turn of the event loop."""

    controller_quorum_election_timeout_ms: Annotated[int, milliseconds(1, 600_000)] = 1_000
    """How long a voter waits in an election before it tries again; a random part up to the same length is added."""

    controller_quorum_fetch_timeout_ms: Annotated[int, milliseconds(10, 600_000)] = 2_000
    """How long a voter goes without an answer of the quorum leader before it starts an election.  Too small: elections
    under load.  Too large: metadata stands still for long after a loss."""

    controller_quorum_request_timeout_ms: Annotated[int, milliseconds(10, 600_000)] = 2_000
    """How long a quorum request waits for its answer before the connection is given up."""

    controller_quorum_retry_backoff_ms: Annotated[int, milliseconds(1, 60_000)] = 20
    """Pause before a failed quorum request is sent again."""

    controller_quorum_election_backoff_max_ms: Annotated[int, milliseconds(1, 600_000)] = 1_000
    """Most that a loser of an election waits, at random, before the next try."""

    # ---- requests ---------------------------------------------------------------------------------------------------

    queued_max_request_bytes: Annotated[
        int,
        size_bytes(MIB, 64 * GIB),
        Differs(
            "-1 (no limit)", "every queue has a bound; a full one makes clients wait instead of killing the broker"
        ),
    ] = 64 * MIB
    """Bytes of received requests that may wait to be handled.  When full, the broker stops reading from its clients."""

    queued_max_response_bytes: Annotated[
        int,
        size_bytes(MIB, 64 * GIB),
        Differs("no such key; records go from a file to the network", "consumers that do not read fill no memory"),
    ] = 256 * MIB
    """Bytes of records that were read for consumers and that these have not received.  While it fills, each gets less at a
    time, down to one batch; when full, they wait for one another, and connections that do not read end.  Followers have no
    part in it."""

    request_timeout_ms: Annotated[int, milliseconds(1, HOUR_MS)] = 30_000
    """How long this node waits for an answer of another node, and at most lets an acks=all write wait for followers."""

    # ---- what it tells ----------------------------------------------------------------------------------------------

    logging_format: Annotated[
        LoggingFormat,
        Choice(LoggingFormat),
        Differs("no such key; Kafka configures log4j", "there is no JVM"),
    ] = LoggingFormat.TEXT
    """Lines of what a node prints.  text: for people.  json: an object each, for log collectors; needs the extra
    `replog[json]`."""

    metrics_listener: Annotated[
        Endpoint | None,
        OneEndpoint(),
        Differs("no such key; Kafka exports JMX", "there is no JVM; Prometheus reads it as it is"),
    ] = None
    """Address that serves metrics to Prometheus, at /metrics.  Not set, or empty: off, at no cost.  Port 0 takes a free one,
    which the log tells.  Needs the extra `replog[metrics]`; for anything but loopback metrics.security.protocol = "SSL" with
    listener.name.metrics.ssl.client.auth = "required", or allow.insecure."""

    metrics_group_offsets_max: Annotated[
        int,
        Number(0, 1_000_000),
        Differs("no such key", "each partition of each group is a series of its own"),
    ] = 1_000
    """Committed offsets of groups that a broker tells Prometheus of; `replog_group_offsets_left_out` counts the others."""

    console_listener: Annotated[
        Endpoint | None,
        OneEndpoint(),
        Differs("no such key", "a page for people comes with the broker"),
    ] = None
    """Address of the console for browsers (docs/CONSOLE.md), which runs beside the broker as a process of its own.  Not set, or
    empty: off.  Port 0 takes a free one, which the log tells.  Loopback only.  Needs the extra `replog[console]`."""

    console_allow_changes: Annotated[
        bool,
        Flag(),
        Differs("no such key", "everybody who reaches the page may change groups and dead letters"),
    ] = False
    """Whether the console may put offsets of groups somewhere else and send dead letters back; else it only shows."""

    # ---- what follows from it ---------------------------------------------------------------------------------------

    @property
    def is_broker(self) -> bool:
        return ProcessRole.BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        return ProcessRole.CONTROLLER in self.process_roles

    @property
    def log_dir(self) -> str:
        """The first folder of `log_dirs`."""
        return self.log_dirs[0]

    @property
    def client_listener(self) -> Endpoint:
        """The address of the first listener for clients."""
        return self.listeners[0].endpoint

    def protocol_of(self, name: str) -> SecurityProtocol | None:
        """Returns how clients speak at the listener of a name; None: the map of protocols lacks it."""
        found = (each.protocol for each in self.listener_security_protocol_map if each.name == name)
        return next(found, None)

    @property
    def peer_listener(self) -> Endpoint:
        """Where other nodes are served."""
        if self.inter_broker_listener is not None:
            return self.inter_broker_listener
        listener = self.client_listener
        return Endpoint(listener.host, listener.port + 1 if listener.port else 0)

    def asks_who_they_are(self, name: str) -> bool:
        """Whether whoever comes by the listener of a name has to show an identity, and nobody can listen or take it over."""
        protocol = self.protocol_of(name)
        shows_certificate = self.security_of(name).ssl_client_auth is ClientAuth.REQUIRED
        return protocol is SecurityProtocol.SASL_SSL or (protocol is SecurityProtocol.SSL and shows_certificate)

    def told_client_listener(self, listener: NamedEndpoint, port: int) -> Endpoint:
        """Returns the address that the clients of a listener are told.

        Args:
            listener: The listener.
            port: The port that was bound for it.
        """
        advertised = (each.endpoint for each in self.advertised_listeners if each.name == listener.name)
        return next(advertised, Endpoint(listener.endpoint.host, port))

    def told_peer_listener(self, port: int) -> Endpoint:
        """Returns the address that other nodes are told.

        Args:
            port: The port that was bound.
        """
        if self.inter_broker_advertised_listener is not None:
            return self.inter_broker_advertised_listener
        advertised = self.advertised_listeners
        return Endpoint(advertised[0].endpoint.host if advertised else self.peer_listener.host, port)

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """Node ids of the quorum's voters, ascending; this node's alone where none are configured."""
        return tuple(sorted(voter.voter_id for voter in self.controller_quorum_voters)) or (self.node_id,)


KEYS: Mapping[str, Key] = keys_of(ServerKeys)
"""Every key by its dotted name, in the order of `ServerKeys`."""
