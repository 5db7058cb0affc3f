"""DescribeAcls, CreateAcls and DeleteAcls, over a node's port."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_node_kit import Served, serving

from replog.access.entries import AclOperation, ResourceKind
from replog.access.principal import ANONYMOUS, Principal
from replog.errors import ErrorCode
from replog.protocol.handlers.access import acls
from replog.protocol.handlers.node import Failure
from replog.testing import SimulatedFileSystem
from replog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from replog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from replog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KEYS = {"authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS"}
TOPIC, LITERAL, PREFIXED, READ, WRITE, ANY, DENY, ALLOW = 2, 3, 4, 3, 4, 1, 2, 3
Creation = CreateAclsRequest.AclCreation
READS = Creation(TOPIC, "flights", LITERAL, "User:alice", "*", READ, ALLOW)
EVERYTHING = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)


async def create(it: Served, *creations: Any, version: int = 3) -> list[tuple[int, str | None]]:
    answer = await it.ask(CreateAclsRequest(list(creations)), version, CreateAclsResponse)
    return [(one.error_code, one.error_message) for one in answer.results]


async def described(it: Served, request: DescribeAclsRequest = EVERYTHING, version: int = 3) -> list[tuple[Any, ...]]:
    answer = await it.ask(request, version, DescribeAclsResponse)
    assert answer.error_code == 0, answer
    return [
        (
            of.resource_type,
            of.resource_name,
            of.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for of in answer.resources
        for one in of.acls
    ]


@pytest.mark.parametrize("version", CreateAclsRequest.VERSIONS)
async def test_entries_come_and_go_and_are_in_force_meanwhile(version: int) -> None:
    async with serving(**KEYS) as it:
        writes = Creation(TOPIC, "fl", PREFIXED, "User:bob", "10.0.0.1", WRITE, DENY)
        assert await create(it, READS, writes, version=version) == [(0, None)] * 2
        await it.until(lambda: len(it.kafka.image.acls) == 2)
        bob = (TOPIC, "fl", PREFIXED, "User:bob", "10.0.0.1", WRITE, DENY)
        alice = (TOPIC, "flights", LITERAL, "User:alice", "*", READ, ALLOW)
        assert await described(it, version=version) == [bob, alice]
        match_flights = DescribeAclsRequest(TOPIC, "flights", 2, "User:bob", None, ANY, ANY)
        assert await described(it, match_flights, version) == [bob]
        reads = it.kafka.authorizer.allows
        assert reads(Principal("alice"), "10.0.0.1", AclOperation.READ, ResourceKind.TOPIC, "flights")
        gone = DeleteAclsRequest.DeleteAclsFilter(ANY, None, ANY, "User:alice", None, ANY, ANY)
        answer = await it.ask(DeleteAclsRequest([gone]), version, DeleteAclsResponse)
        (result,) = answer.filter_results
        assert [one.resource_name for one in result.matching_acls] == ["flights"]
        await it.until(lambda: len(it.kafka.image.acls) == 1)
        assert not reads(Principal("alice"), "10.0.0.1", AclOperation.READ, ResourceKind.TOPIC, "flights")


async def test_entries_survive_a_restart_and_nobody_is_judged_without_them() -> None:
    fs = SimulatedFileSystem()
    async with serving(fs, **KEYS) as it:
        await create(it, READS)
    async with serving(fs, **KEYS) as it:
        assert [one[1] for one in await described(it)] == ["flights"]
        assert it.kafka.authorizer.allows(
            Principal("alice"), "10.0.0.1", AclOperation.READ, ResourceKind.TOPIC, "flights"
        )


async def test_an_entry_that_cannot_be_one_has_its_own_answer() -> None:
    async with serving(**KEYS) as it:
        wrong = Creation(TOPIC, "flights", LITERAL, "alice", "*", READ, ALLOW)
        refused, made = await create(it, wrong, READS)
        assert refused[0] == ErrorCode.INVALID_REQUEST
        assert "write it as User:NAME" in str(refused[1])
        assert made == (0, None)
        code, message = (await create(it, Creation(99, "flights", LITERAL, "User:a", "*", READ, ALLOW)))[0]
        assert (code, "does not know the code" in str(message)) == (ErrorCode.INVALID_REQUEST, True)


async def test_without_an_authorizer_entries_are_refused() -> None:
    async with serving() as it:
        ((code, message),) = await create(it, READS)
        assert code == ErrorCode.SECURITY_DISABLED
        assert "set authorizer.class.name" in str(message)
        answer = await it.ask(EVERYTHING, 3, DescribeAclsResponse)
        assert answer.error_code == ErrorCode.SECURITY_DISABLED


async def test_only_who_may_alter_the_cluster_changes_entries() -> None:
    async with serving(authorizer_class_name=STANDARD, super_users="User:admin") as it:
        ((code, message),) = await create(it, READS)
        assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert str(ANONYMOUS) in str(message)
        answer = await it.ask(EVERYTHING, 3, DescribeAclsResponse)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        deleted = await it.ask(
            DeleteAclsRequest([DeleteAclsRequest.DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)]),
            3,
            DeleteAclsResponse,
        )
        assert [one.error_code for one in deleted.filter_results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        assert not it.kafka.image.acls


def test_a_request_that_failed_as_a_whole_is_refused_for_each_thing() -> None:
    failure = Failure(ErrorCode.REQUEST_TIMED_OUT, "late")
    assert acls.refuse_create_acls(CreateAclsRequest([READS, READS]), failure).results[1].error_message == "late"
    filters = DeleteAclsRequest([DeleteAclsRequest.DeleteAclsFilter()])
    assert acls.refuse_delete_acls(filters, failure).filter_results[0].error_message == "late"
