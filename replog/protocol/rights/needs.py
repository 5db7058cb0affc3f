"""The shapes of a row of the table of rights: what a whole request needs, what each thing in it does, what a handler sees to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import Struct

from replog.access.entries import AclOperation, ResourceKind
from replog.errors import ErrorCode
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.node import Failure

Resource: TypeAlias = tuple[ResourceKind, str]
"""A kind, and the name of one resource of it."""


class Need(Struct, frozen=True):
    """What a request needs as a whole: without it none of it is done.

    Attributes:
        operation: The operation.
        kind: The kind of the resource.
        names: The function that returns the names of the resources, of the request and the metadata; None: it is the cluster.
        otherwise: An operation that does as well; None: there is none.
        by_id: Whether the request has ids instead of the names, which it is not told then.
    """

    operation: AclOperation
    kind: ResourceKind = ResourceKind.CLUSTER
    names: Callable[[Any, MetadataImage], Iterable[str]] | None = None
    otherwise: AclOperation | None = None
    by_id: bool = False


class Each(Struct, frozen=True):
    """What each thing that a request names needs: those that lack it are refused, and the others are answered.

    Attributes:
        operation: The operation.
        asked: The field of the request that has the things.
        told: The field of the answer that has what is told of them.
        resources: The function that returns the resources of a thing, or the code that says why its name is not known: whoever
            decides later may know it.  None where the handler refuses the thing whatever there is.
        kinds: The kinds of resources, for people.
        everywhere: The operation on the cluster that does for all of them; None: there is none.
        refuse: The function that returns what is told of a thing that is refused; None: what the API's own refusal tells.
    """

    operation: AclOperation
    asked: str
    told: str
    resources: Callable[[MetadataImage, Any], Iterable[Resource] | ErrorCode]
    kinds: tuple[ResourceKind, ...]
    everywhere: AclOperation | None = None
    refuse: Callable[[Any, Failure], Any] | None = None


class Inside(Struct, frozen=True):
    """What a handler sees to, since it depends on what is found, or on the version.

    Attributes:
        operation: The operation.
        kind: The kind of the resource.
        what: What it is needed for, and what comes without it.
    """

    operation: AclOperation
    kind: ResourceKind
    what: str


class Right(Struct, frozen=True):
    """The row of an API.

    Attributes:
        needs: What a request needs.
        note: What else there is to know; "": nothing.
        administers: Whether it changes what there is, which is told in the audit log.
    """

    needs: tuple[Need | Each | Inside, ...] = ()
    note: str = ""
    administers: bool = False
