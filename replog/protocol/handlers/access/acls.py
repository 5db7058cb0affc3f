"""The entries of access control lists: DescribeAcls, CreateAcls, DeleteAcls."""

from __future__ import annotations

from collections.abc import Iterable

from replog.access.authorizer import OPEN
from replog.access.entries import (
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
)
from replog.controller.requests import AclResult, CreateAcls, DeleteAcls
from replog.errors import InvalidRequestError, SecurityDisabledError
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, require_few, text
from replog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from replog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from replog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

DescribedResource = DescribeAclsResponse.DescribeAclsResource
DescribedAcl = DescribeAclsResponse.AclDescription
CreatedAcl = CreateAclsResponse.AclCreationResult
FilterResult = DeleteAclsResponse.DeleteAclsFilterResult
MatchingAcl = DeleteAclsResponse.DeleteAclsMatchingAcl


async def describe_acls(node: KafkaNode, request: DescribeAclsRequest, _call: Call) -> DescribeAclsResponse:
    """Returns the entries that a filter fits, as this node knows them, by resource and pattern."""
    _require_authorizer(node)
    meant = _filter(request)
    acls = node.image.acls
    return DescribeAclsResponse(error_message=None, resources=await beside(len(acls), _described, acls.values(), meant))


def _described(entries: Iterable[AclEntry], meant: AclFilter) -> list[DescribedResource]:
    found: dict[tuple[ResourceKind, str, PatternType], list[DescribedAcl]] = {}
    for entry in sorted(filter(meant.fits, entries)):
        acls = found.setdefault((entry.kind, entry.name, entry.pattern), [])
        acls.append(DescribedAcl(entry.principal, entry.host, entry.operation, entry.permission))
    return [DescribedResource(kind, name, pattern, acls) for (kind, name, pattern), acls in found.items()]


async def create_acls(node: KafkaNode, request: CreateAclsRequest, call: Call) -> CreateAclsResponse:
    """Adds entries; one that cannot be one stops no other."""
    _require_authorizer(node)
    require_few(len(request.creations), "entries")
    entries = await beside(len(request.creations), _entries, request)
    created = await node.change(CreateAcls(entries), node.request_timeout_ms, call.rights)
    return CreateAclsResponse(results=[CreatedAcl(one.error, text(one.message)) for one in created.results])


def refuse_create_acls(request: CreateAclsRequest, failure: Failure) -> CreateAclsResponse:
    """Returns the answer to a request that failed as a whole."""
    return CreateAclsResponse(results=[CreatedAcl(failure.code, failure.message) for _ in request.creations])


def _entries(request: CreateAclsRequest) -> tuple[AclEntry, ...]:
    try:
        return tuple(
            AclEntry(
                ResourceKind(one.resource_type),
                one.resource_name,
                PatternType(one.resource_pattern_type),
                one.principal,
                one.host,
                AclOperation(one.operation),
                Permission(one.permission_type),
            )
            for one in request.creations
        )
    except ValueError as error:
        raise _unknown(error) from None


async def delete_acls(node: KafkaNode, request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    """Removes all entries that a filter fits, and tells which."""
    _require_authorizer(node)
    require_few(len(request.filters), "filters")
    filters = await beside(len(request.filters), lambda: tuple(map(_filter, request.filters)))
    deleted = await node.change(DeleteAcls(filters), node.request_timeout_ms, call.rights)
    count = sum(len(one.entries) for one in deleted.results)
    return DeleteAclsResponse(filter_results=await beside(count, lambda: list(map(_deleted, deleted.results))))


def refuse_delete_acls(request: DeleteAclsRequest, failure: Failure) -> DeleteAclsResponse:
    """Returns the answer to a request that failed as a whole."""
    return DeleteAclsResponse(filter_results=[FilterResult(failure.code, failure.message) for _ in request.filters])


def _deleted(result: AclResult) -> FilterResult:
    matching = [
        MatchingAcl(
            error_message=None,
            resource_type=entry.kind,
            resource_name=entry.name,
            pattern_type=entry.pattern,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for entry in result.entries
    ]
    return FilterResult(result.error, text(result.message), matching)


def _filter(asked: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    try:
        return AclFilter(
            ResourceKind(asked.resource_type_filter),
            asked.resource_name_filter,
            PatternType(asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            AclOperation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as error:
        raise _unknown(error) from None


def _unknown(error: ValueError) -> InvalidRequestError:
    return InvalidRequestError(f"{error}: this broker does not know the code; a newer one may")


def _require_authorizer(node: KafkaNode) -> None:
    """Refuses what would be an entry for nothing.

    Raises:
        SecurityDisabledError: There is no authorizer, so that entries would protect nothing.
    """
    if node.authorizer is OPEN:
        raise SecurityDisabledError(
            "no authorizer is configured, so everybody may do everything and entries would protect nothing: set "
            "authorizer.class.name on every node first"
        )
