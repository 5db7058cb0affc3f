"""What an administrator does with access control lists: look at their entries, create some, delete some.

A base class of `Admin`; every method retries what is worth retrying, for its time-out at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from replog.access.entries import AclEntry, AclFilter, entry_problem
from replog.client.admin.operations import in_parts
from replog.client.arguments import items_of, limit_ms, wrong_type
from replog.client.cluster.view import ClusterView
from replog.controller.requests import AclResult, CreateAcls, DeleteAcls
from replog.errors import ErrorCode, InvalidRequestError
from replog.errors.from_code import error_from_code

T = TypeVar("T")


class AclOperations:
    """Needs what `Admin` has: a view of the cluster, and a time-out for methods that are given none."""

    _view: ClusterView
    _timeout_ms: int

    async def describe_acls(
        self, meant: AclFilter | None = None, *, timeout_ms: int | None = None
    ) -> tuple[AclEntry, ...]:
        """Returns the entries that a filter fits, in order, as one broker knows them; another may hear of a change a little later.

        Args:
            meant: The filter; None: all entries.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            ClusterAuthorizationError: The caller may not DESCRIBE the cluster.
            SecurityDisabledError: The broker has no authorizer.
        """
        from replog.client.protocol.questions.acls import DescribeAcls  # loaded with the first question of its kind

        question = DescribeAcls(_required(AclFilter, "meant", AclFilter() if meant is None else meant))
        within_ms = limit_ms(timeout_ms, self._timeout_ms)
        answer = await self._view.call_any(question, timeout_ms=within_ms, what="describe access control lists")
        return answer.entries

    async def create_acls(self, entries: Iterable[AclEntry], *, timeout_ms: int | None = None) -> None:
        """Adds entries; those that are there already stay.  Brokers that hear of it a little later decide as before until then.

        Args:
            entries: The entries.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            InvalidRequestError: An entry cannot be one; nothing was asked for.
            ClusterAuthorizationError: The caller may not ALTER the cluster.
            SecurityDisabledError: The broker has no authorizer.
            PolicyViolationError: There are too many entries; those before are there.
        """
        wanted = [
            _required(AclEntry, "entries", one) for one in items_of("entries", entries, "several of the class AclEntry")
        ]
        for entry in wanted:
            if (problem := entry_problem(entry)) is not None:
                from replog.access.sentences import sentence  # for people only

                raise InvalidRequestError(f"{sentence(entry)}: {problem}")
        for part in in_parts(wanted):
            answer = await self._view.call_any(
                CreateAcls(part),
                timeout_ms=limit_ms(timeout_ms, self._timeout_ms),
                what="create access control entries",
            )
            _raise_first(answer.results)

    async def delete_acls(self, filters: Iterable[AclFilter], *, timeout_ms: int | None = None) -> tuple[AclEntry, ...]:
        """Removes all entries that one of the filters fits, and returns them, each once, in order.

        An attempt whose answer was lost may have removed some, which a second one does not tell of.

        Args:
            filters: The filters; one that fits everything removes everything.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            ClusterAuthorizationError: The caller may not ALTER the cluster.
            SecurityDisabledError: The broker has no authorizer.
            PolicyViolationError: The filters are too many for one request.
        """
        asked = tuple(
            _required(AclFilter, "filters", one)
            for one in items_of("filters", filters, "several of the class AclFilter")
        )
        if not asked:
            return ()
        answer = await self._view.call_any(
            DeleteAcls(asked), timeout_ms=limit_ms(timeout_ms, self._timeout_ms), what="delete access control entries"
        )
        _raise_first(answer.results)
        return tuple(sorted({entry for result in answer.results for entry in result.entries}))


def _required(cls: type[T], name: str, value: object) -> T:
    if not isinstance(value, cls):
        raise wrong_type(name, value, f"of the class {cls.__name__}")
    return value


def _raise_first(results: Sequence[AclResult]) -> None:
    for result in results:
        if result.error is not ErrorCode.NONE:
            raise error_from_code(result.error, result.message)
