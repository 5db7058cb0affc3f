"""The entries of access control lists are described, created and deleted: DescribeAcls, CreateAcls, DeleteAcls.

Any broker tells of them, as far as it has heard of changes, and passes changes on to the active controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from replog.access.entries import AclEntry, AclFilter, AclOperation, PatternType, Permission, ResourceKind
from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import lacking, raise_if_refused, raise_if_unanswered, told
from replog.controller.requests import AclResult, CreateAcls, DeleteAcls
from replog.controller.requests import CreateAclsResponse as AclsCreated
from replog.controller.requests import DeleteAclsResponse as AclsDeleted
from replog.errors import MalformedFrameError
from replog.waiting.asks import Asks
from replog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from replog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from replog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class DescribeAcls(Asks["AclsDescribed"], frozen=True):
    """Asks for the entries that a filter fits."""

    meant: AclFilter


class AclsDescribed(Struct, frozen=True):
    """The entries, in order."""

    entries: tuple[AclEntry, ...]


async def describe_acls(broker: Broker, question: DescribeAcls, timeout_ms: int) -> AclsDescribed:
    """Returns the entries that a filter fits, in order."""
    meant = question.meant
    request = DescribeAclsRequest(
        meant.kind, meant.name, meant.pattern, meant.principal, meant.host, meant.operation, meant.permission
    )
    answer = await broker.ask(request, DescribeAclsResponse, timeout_ms=timeout_ms)
    raise_if_refused(answer.error_code, answer.error_message)
    found = (
        _entry(broker, (of.resource_type, of.resource_name, of.pattern_type), one)
        for of in answer.resources
        for one in of.acls
    )
    return AclsDescribed(tuple(sorted(found)))


def _entry(broker: Broker, pattern: tuple[int, str, int], one: Any) -> AclEntry:
    """Returns an entry of an answer.

    Raises:
        MalformedFrameError: It has a code that this version does not know.
    """
    kind, name, pattern_type = pattern
    try:
        return AclEntry(
            ResourceKind(kind),
            name,
            PatternType(pattern_type),
            one.principal,
            one.host,
            AclOperation(one.operation),
            Permission(one.permission_type),
        )
    except ValueError as error:
        raise MalformedFrameError(
            f"{broker.address} tells of an access control entry of another version: {error}; use its version"
        ) from error


async def create_acls(broker: Broker, question: CreateAcls, timeout_ms: int) -> AclsCreated:
    """Adds entries; one result for each, in order."""
    creations = [
        CreateAclsRequest.AclCreation(
            one.kind, one.name, one.pattern, one.principal, one.host, one.operation, one.permission
        )
        for one in question.entries
    ]
    answer = await broker.ask(CreateAclsRequest(creations), CreateAclsResponse, timeout_ms=timeout_ms)
    results = tuple(AclResult(*told(one.error_code, one.error_message)) for one in answer.results)
    _require_all(broker, results, len(creations))
    return AclsCreated(results)


async def delete_acls(broker: Broker, question: DeleteAcls, timeout_ms: int) -> AclsDeleted:
    """Removes the entries that filters fit; one result for each filter, in order."""
    filters = [
        DeleteAclsRequest.DeleteAclsFilter(
            one.kind, one.name, one.pattern, one.principal, one.host, one.operation, one.permission
        )
        for one in question.filters
    ]
    answer = await broker.ask(DeleteAclsRequest(filters), DeleteAclsResponse, timeout_ms=timeout_ms)
    results = tuple(
        AclResult(
            *told(result.error_code, result.error_message),
            tuple(
                _entry(broker, (one.resource_type, one.resource_name, one.pattern_type), one)
                for one in result.matching_acls
                if not one.error_code
            ),
        )
        for result in answer.filter_results
    )
    _require_all(broker, results, len(filters))
    return AclsDeleted(results)


def _require_all(broker: Broker, results: Sequence[AclResult], count: int) -> None:
    raise_if_unanswered(results)
    if len(results) != count:
        raise lacking(broker, f"{count} results, but with {len(results)}")


QUESTIONS: Final[Mapping[type[Any], Question]] = {
    DescribeAcls: describe_acls,
    CreateAcls: create_acls,
    DeleteAcls: delete_acls,
}
"""By the class of the question."""
