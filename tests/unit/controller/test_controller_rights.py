"""The active controller decides what a client may have of a change: by its newest state, thing by thing."""

from __future__ import annotations

from typing import Any, get_args
from uuid import UUID

import pytest
from controller_kit import Quorum, alterable

from replog.access.credentials import ScramMechanism
from replog.access.entries import AclEntry, AclFilter, AclOperation, PatternType, Permission, ResourceKind
from replog.access.principal import ClientIdentity, Envelope, Principal
from replog.access.standard import StandardAuthorizer
from replog.access.token_key import TokenKey
from replog.controller.config import ControllerConfig
from replog.controller.requests import (
    AlterableScramCredential,
    AlterClientQuotas,
    AlterConfigs,
    AlterConfigsResource,
    AlteredQuota,
    AlteredQuotaEntity,
    AlterPartitionReassignments,
    AlterUserScramCredentials,
    ClientChange,
    CreateAcls,
    CreateDelegationToken,
    CreateInternalTopic,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    DrainBroker,
    ElectLeaders,
    ExpireDelegationToken,
    FeatureUpdate,
    ForkTopic,
    NewPartitions,
    NewTopic,
    Reassignment,
    RenewDelegationToken,
    UnregisterBroker,
    UpdateFeatures,
)
from replog.controller.rights import CHANGE_RIGHTS
from replog.controller.state import acls
from replog.errors import (
    AuthorizationError,
    DelegationTokenAuthorizationError,
    DelegationTokenNotFoundError,
    ErrorCode,
    InvalidTopicError,
    NotControllerError,
    ReplogError,
)
from replog.metadata.records import ElectionType, QuotaEntityPart, ResourceType
from tests.work_counts import calls_of

ALICE, ADMIN = (ClientIdentity(Principal(name), "10.0.0.9") for name in ("alice", "admin"))
CREATE, DELETE, ALTER = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER
TOPIC, CLUSTER = ResourceKind.TOPIC, ResourceKind.CLUSTER
REFUSED, DONE = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE
NAME = "kafka-cluster"


def guarded(**others: Any) -> Quorum:
    """A controller with an authorizer, a broker, and the topics `mine` and `secret`."""
    config = ControllerConfig(new_authorizer=lambda: StandardAuthorizer({"User:admin"}), **others)
    quorum = Quorum(1, 2, config=config)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    by(quorum, CreateTopics((NewTopic("mine", 1, 1), NewTopic("secret", 1, 1))), ADMIN)
    return quorum


def by(quorum: Quorum, change: ClientChange, client: ClientIdentity = ALICE) -> Any:
    return quorum.ask(Envelope(change, client))


def entry(
    operation: AclOperation, kind: ResourceKind = CLUSTER, name: str = NAME, user: str = "User:alice"
) -> AclEntry:
    return AclEntry(kind, name, PatternType.LITERAL, user, "*", operation, Permission.ALLOW)


def grant(quorum: Quorum, *entries: AclEntry) -> None:
    by(quorum, CreateAcls(entries), ADMIN)


def errors(response: Any) -> list[ErrorCode]:
    return [one.error for one in getattr(response, response.__struct_fields__[0])]


ENTITY = AlteredQuotaEntity((QuotaEntityPart("user", "bob"),), (AlteredQuota("producer_byte_rate", 5.0),))
CONFIGS = (alterable("retention.ms", "5"),)
CHANGES: dict[type, tuple[ClientChange, AclEntry]] = {
    CreateTopics: (CreateTopics((NewTopic("new", 1, 1),)), entry(CREATE, TOPIC, "new")),
    DeleteTopics: (DeleteTopics(("mine",)), entry(DELETE, TOPIC, "mine")),
    ForkTopic: (ForkTopic("mine", UUID(int=1), "new", (0,)), entry(CREATE, TOPIC, "new")),
    CreatePartitions: (CreatePartitions((NewPartitions("mine", 2),)), entry(ALTER, TOPIC, "mine")),
    AlterConfigs: (
        AlterConfigs((AlterConfigsResource(ResourceType.TOPIC, "mine", CONFIGS),)),
        entry(AclOperation.ALTER_CONFIGS, TOPIC, "mine"),
    ),
    AlterClientQuotas: (AlterClientQuotas((ENTITY,)), entry(AclOperation.ALTER_CONFIGS)),
    AlterPartitionReassignments: (AlterPartitionReassignments((Reassignment("mine", 0, (1,)),)), entry(ALTER)),
    AlterUserScramCredentials: (
        AlterUserScramCredentials((AlterableScramCredential("bob", ScramMechanism.SHA_256),)),
        entry(ALTER),
    ),
    CreateAcls: (CreateAcls((entry(AclOperation.READ, TOPIC, "t"),)), entry(ALTER)),
    DeleteAcls: (DeleteAcls((AclFilter(),)), entry(ALTER)),
    DrainBroker: (DrainBroker(1, drained=True), entry(ALTER)),
    ElectLeaders: (ElectLeaders(ElectionType.PREFERRED), entry(ALTER)),
    UnregisterBroker: (UnregisterBroker(9), entry(ALTER)),
    UpdateFeatures: (UpdateFeatures((FeatureUpdate("metadata.version", 5),), validate_only=True), entry(ALTER)),
    CreateDelegationToken: (
        CreateDelegationToken("bob"),
        entry(AclOperation.CREATE_TOKENS, ResourceKind.USER, "User:bob"),
    ),
}


def test_a_new_controller_arranges_entries_in_steps_before_it_judges_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: the first client that was judged had all twenty thousand arranged in one step, a tenth of a second."""
    monkeypatch.setattr(acls, "ARRANGED_TOGETHER", 10)
    quorum = guarded()
    grant(quorum, *(entry(CREATE, TOPIC, f"t{number}") for number in range(40)))
    quorum.renounce()
    quorum.claim(2)
    quorum.commit()
    arranged: list[int] = []
    update = StandardAuthorizer.update

    def counted(authorizer: StandardAuthorizer, gone: Any, new: Any) -> None:
        arranged.append(len(list(new)))
        update(authorizer, gone, new)

    monkeypatch.setattr(StandardAuthorizer, "update", counted)
    requests = [NewTopic(name, 1, 1) for name in ("t7", "other", "t39")]
    request_id = quorum.submit(Envelope(CreateTopics(tuple(requests)), ALICE))
    with pytest.raises(NotControllerError):
        quorum.leader.rights(ALICE, "AddRaftVoter", lambda _: None)
    while request_id not in quorum.replies:
        before = len(arranged)
        quorum.tick()
        assert len(arranged) <= before + 1
        quorum.commit()
    assert errors(quorum.replies[request_id]) == [DONE, REFUSED, DONE]
    assert (sum(arranged), max(arranged)) == (40, 10)


def outcome(quorum: Quorum, change: ClientChange, client: ClientIdentity) -> list[ErrorCode]:
    try:
        response = by(quorum, change, client)
    except AuthorizationError as error:
        return [error.code]
    except ReplogError:  # for another reason: it was allowed
        return []
    return [code for code in errors(response) if "AUTHORIZATION" in code.name] if change_is_divided(change) else []


def change_is_divided(change: ClientChange) -> bool:
    return bool(CHANGE_RIGHTS[type(change)].things)


def test_each_change_of_clients_is_in_the_table_of_rights() -> None:
    of_their_own = {RenewDelegationToken, ExpireDelegationToken}
    assert set(CHANGES) | of_their_own == set(CHANGE_RIGHTS) == set(get_args(ClientChange))


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.__name__)
def test_a_change_needs_its_right_and_no_other(kind: type) -> None:
    change, right = CHANGES[kind]
    quorum = guarded(token_key=TokenKey("secret"))
    codes = {
        TOPIC: REFUSED,
        CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ResourceKind.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
    bob = ClientIdentity(Principal("mallory"), ALICE.host)
    for client in (ALICE, bob):
        end_offset = quorum.image.end_offset
        assert outcome(quorum, change, client) == [codes[right.kind]]
        assert quorum.image.end_offset == end_offset
        denial = quorum.denials[-1]
        assert (denial.client, denial.api) == (client, kind.__name__)
        assert (denial.operation, denial.kind, denial.name) == (right.operation, right.kind, right.name)
    grant(quorum, entry(AclOperation.DESCRIBE, right.kind, right.name))
    assert outcome(quorum, change, ALICE) == [codes[right.kind]]
    grant(quorum, right)
    assert outcome(quorum, change, bob) == [codes[right.kind]]
    assert outcome(quorum, change, ALICE) == []


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.__name__)
def test_a_super_user_may_have_each_change_and_everybody_without_an_authorizer(kind: type) -> None:
    change, _ = CHANGES[kind]
    assert outcome(guarded(), change, ADMIN) == []
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    assert outcome(quorum, change, ALICE) == []
    assert quorum.denials == []


def test_what_is_refused_among_others_has_its_place_in_the_answer() -> None:
    quorum = guarded()
    grant(quorum, entry(CREATE, TOPIC, "b"), entry(CREATE, TOPIC, "d"), entry(ALTER, TOPIC, "mine"))
    made = by(quorum, CreateTopics(tuple(NewTopic(name, 1, 1) for name in "abcde")))
    assert [(one.name, one.error) for one in made.topics] == [
        (name, DONE if name in "bd" else REFUSED) for name in "abcde"
    ]
    assert {"b", "d"} <= set(quorum.image.topics_by_name)
    assert all(word in made.topics[0].message for word in ("User:alice", "10.0.0.9", "CREATE", '"a"'))
    grown = by(quorum, CreatePartitions((NewPartitions("secret", 2), NewPartitions("mine", 2))))
    assert [(one.name, one.error) for one in grown.topics] == [("secret", REFUSED), ("mine", DONE)]
    assert [denial.name for denial in quorum.denials] == ["a", "c", "e", "secret"]


def test_a_topic_is_deleted_by_its_id_with_the_right_to_its_name_which_is_not_told() -> None:
    quorum = guarded()
    grant(quorum, entry(DELETE, TOPIC, "mine"))
    ids = {name: topic.topic_id for name, topic in quorum.image.topics_by_name.items()}
    gone = by(quorum, DeleteTopics(("secret", "none"), (ids["secret"], UUID(int=7), ids["mine"])))
    assert errors(gone) == [REFUSED, REFUSED, REFUSED, ErrorCode.UNKNOWN_TOPIC_ID, DONE]
    assert (gone.topics[2].name, gone.topics[2].topic_id) == ("", ids["secret"])
    assert "secret" not in gone.topics[2].message
    assert str(ids["secret"]) in gone.topics[2].message
    assert set(quorum.image.topics_by_name) == {"secret"}


def test_a_right_to_the_cluster_does_for_topics_that_come_and_go() -> None:
    quorum = guarded()
    grant(quorum, entry(CREATE), entry(DELETE))
    assert errors(by(quorum, CreateTopics((NewTopic("new", 1, 1),)))) == [DONE]
    assert errors(by(quorum, DeleteTopics(("secret",)))) == [DONE]
    assert quorum.denials == []


def test_configurations_of_brokers_are_the_clusters() -> None:
    quorum = guarded()
    grant(quorum, entry(AclOperation.ALTER_CONFIGS, TOPIC, "mine"))
    resources = ((ResourceType.TOPIC, "mine"), (ResourceType.BROKER, ""), (ResourceType.TOPIC, "secret"))
    wish = AlterConfigs(tuple(AlterConfigsResource(*each, CONFIGS) for each in resources))
    assert errors(by(quorum, wish)) == [DONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, REFUSED]


def test_a_change_in_many_steps_tells_what_was_refused_too() -> None:
    quorum = guarded(max_records_per_step=20)
    by(quorum, CreateTopics((NewTopic("wide", 60, 1),)), ADMIN)
    grant(quorum, entry(AclOperation.ALTER_CONFIGS, TOPIC, "wide"))
    elects = (alterable("min.insync.replicas", "2"),)
    wish = AlterConfigs(tuple(AlterConfigsResource(ResourceType.TOPIC, name, elects) for name in ("secret", "wide")))
    assert errors(by(quorum, wish)) == [REFUSED, DONE]


def test_a_right_is_gone_with_the_record_that_takes_it_away() -> None:
    """Before that has committed: what waits for it waits too, and is refused if it is never there."""
    quorum = guarded()
    grant(quorum, entry(CREATE))
    wish = CreateTopics((NewTopic("new", 1, 1),))
    quorum.submit(Envelope(DeleteAcls((AclFilter(principal="User:alice"),)), ADMIN))
    asked = quorum.submit(Envelope(wish, ALICE))
    assert asked not in quorum.replies
    quorum.commit()
    assert errors(quorum.replies[asked]) == [REFUSED]


def test_entries_go_back_with_the_state() -> None:
    """A controller that has lost what it wrote decides by what is in the log."""
    quorum = Quorum(1, 2, config=ControllerConfig(new_authorizer=lambda: StandardAuthorizer({"User:admin"})))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    grant(quorum, entry(CREATE, TOPIC, "kept"), entry(CREATE, TOPIC, "gone"))
    wish = CreateTopics((NewTopic("kept", 1, 1), NewTopic("gone", 1, 1), NewTopic("never", 1, 1)), validate_only=True)
    assert errors(by(quorum, wish)) == [DONE, DONE, REFUSED]
    quorum.submit(Envelope(DeleteAcls((AclFilter(name="kept", kind=TOPIC),)), ADMIN))
    quorum.submit(Envelope(CreateAcls((entry(CREATE, TOPIC, "never"),)), ADMIN))
    quorum.submit(Envelope(wish, ALICE))
    quorum.renounce(lost_batches=9)
    quorum.claim(2)
    quorum.commit()
    assert errors(by(quorum, wish)) == [DONE, DONE, REFUSED]
    by(quorum, DeleteAcls((AclFilter(name="gone", kind=TOPIC),)), ADMIN)
    assert errors(by(quorum, wish)) == [DONE, REFUSED, REFUSED]
    quorum.renounce()
    quorum.claim(1)
    quorum.commit()
    assert errors(by(quorum, wish)) == [DONE, REFUSED, REFUSED]


def test_a_controller_that_begins_with_a_snapshot_has_its_entries() -> None:
    quorum = Quorum(1, 2, config=ControllerConfig(new_authorizer=lambda: StandardAuthorizer({"User:admin"})))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    grant(quorum, entry(CREATE, TOPIC, "new"))
    quorum.restart(2, from_snapshot=True)
    quorum.renounce()
    quorum.claim(2)
    quorum.commit()
    wish = CreateTopics((NewTopic("new", 1, 1), NewTopic("other", 1, 1)), validate_only=True)
    assert errors(by(quorum, wish)) == [DONE, REFUSED]


def test_tokens_are_for_oneself_or_with_a_right_and_kept_by_their_owners() -> None:
    quorum = guarded(token_key=TokenKey("secret"))
    by(quorum, CreateDelegationToken("alice"))
    with pytest.raises(DelegationTokenAuthorizationError, match=r'CREATE_TOKENS USER "User:bob"'):
        by(quorum, CreateDelegationToken("bob"))
    for wish in (RenewDelegationToken(b"none"), ExpireDelegationToken(b"none")):
        with pytest.raises(DelegationTokenNotFoundError):
            by(quorum, wish)


def test_who_changes_voters_is_judged_by_the_same_lists() -> None:
    quorum = guarded()
    denied: list[Any] = []
    for _ in range(2):
        rights = quorum.leader.rights(ALICE, "AddRaftVoter", denied.append)
        assert (rights.refused(ALTER, CLUSTER) is None) is (entry(ALTER) in quorum.image.acls.values())
        grant(quorum, entry(ALTER))
    assert [(denial.api, denial.client) for denial in denied] == [("AddRaftVoter", ALICE)]
    leader = quorum.leader
    quorum.renounce()
    with pytest.raises(NotControllerError):
        leader.rights(ALICE, "AddRaftVoter", denied.append)


def test_what_nodes_ask_for_needs_no_right_and_makes_no_topic_of_clients() -> None:
    quorum = guarded()
    made: Any = quorum.ask(CreateInternalTopic(NewTopic("__consumer_offsets", 1, 1)))
    assert errors(made) == [DONE]
    with pytest.raises(InvalidTopicError, match="none of the cluster's own"):
        quorum.ask(CreateInternalTopic(NewTopic("flights", 1, 1)))
    with pytest.raises(KeyError):
        quorum.nodes[1]._managers.handle(CreateTopics((NewTopic("t"),)), 0, quorum.denials.append)  # type: ignore[arg-type]


def test_a_thing_is_a_look_up_however_many_there_are() -> None:
    quorum = guarded()
    grant(quorum, *(entry(DELETE, TOPIC, f"t{number}") for number in range(1_000)))
    by(quorum, DeleteTopics(("none",)))

    def asked(count: int) -> int:
        names = tuple(f"t{number}" for number in range(count))
        return calls_of(lambda: quorum.submit(Envelope(DeleteTopics(names), ALICE)))

    few, many = asked(100), asked(900)
    assert many < 10 * few
