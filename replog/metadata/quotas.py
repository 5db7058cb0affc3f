"""Quotas of clients: of whom, of what, and how much.

A quota belongs to an entity: a user, a client id, both together, or an address.  A part without a name is the default of all that have
none of their own (KIP-546, KIP-612).

    user "alice", client-id "loader"     what alice's clients of this name may do together
    user <default>                       what each user may do that has no quota
    ip "10.0.0.7"                        what comes from one address
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from replog.errors import InvalidRequestError
from replog.metadata.config_keys import shortened
from replog.metadata.records import QuotaEntityPart

QuotaEntity: TypeAlias = tuple[QuotaEntityPart, ...]
"""Each kind at most once, in the order of their names."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
ADDRESS: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1

CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""What a user or a client id may have a quota of: bytes a second that are produced and that are fetched, percent of the time of a thread,
and partitions a second that are created and deleted."""

ADDRESS_KEYS: Final = (CONNECTION_CREATION_RATE,)
"""What an address may have a quota of: connections a second."""

_WHOLE: Final = {PRODUCER_BYTE_RATE: _INT64_MAX, CONSUMER_BYTE_RATE: _INT64_MAX, CONNECTION_CREATION_RATE: _INT32_MAX}
"""Quotas that are whole numbers, and the largest of each."""

QUOTA_NAME_CHARACTERS_MAX: Final = 1024
"""The longest name of a user or a client id that has a quota."""

OWNER_CHARACTERS_MAX: Final = 256
"""How much of a name tells owners of quotas apart: a client may give itself 32 KiB, and another name with each request."""


def quota_entity(*parts: QuotaEntityPart) -> QuotaEntity:
    """Returns the entity of these parts.

    Raises:
        InvalidRequestError: There is no part, one of a kind that is none, one twice, an address beside others, or an address that is none.
    """
    kinds = [part.kind for part in parts]
    if not parts:
        raise InvalidRequestError(f"a quota needs an entity: {USER}, {CLIENT_ID}, both, or {ADDRESS}")
    for part in parts:
        if part.kind not in (USER, CLIENT_ID, ADDRESS):
            problem = f'"{shortened(part.kind)}" has no quotas; {USER}, {CLIENT_ID} and {ADDRESS} have'
            raise InvalidRequestError(problem)
        if part.name is not None and len(part.name) > QUOTA_NAME_CHARACTERS_MAX:
            raise InvalidRequestError(
                f"the name of a quota's {part.kind} has at most {QUOTA_NAME_CHARACTERS_MAX} characters"
            )
    if len(set(kinds)) < len(kinds):
        raise InvalidRequestError(f"an entity has {', '.join(kinds)}, and each of them at most once")
    if ADDRESS in kinds:
        if len(kinds) > 1:
            raise InvalidRequestError(
                f"a quota of an {ADDRESS} is of nothing else; a {USER} and a {CLIENT_ID} go together"
            )
        if (name := parts[0].name) is not None:
            _check_address(name)
    return tuple(sorted(parts, key=lambda part: part.kind))


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Checks that an entity may have a quota of this size.

    Raises:
        InvalidRequestError: It has no such quota, or the number is not above 0, too large, or a fraction where there is none.
    """
    keys = ADDRESS_KEYS if entity[0].kind == ADDRESS else CLIENT_KEYS
    if key not in keys:
        raise InvalidRequestError(
            f'there is no quota "{shortened(key)}" of {described(entity)}; there is {", ".join(keys)}'
        )
    if not 0 < value < math.inf:  # which also is not so for NaN
        raise InvalidRequestError(f"{key} is {value}, and has to be above 0; remove it to have no limit")
    if key in _WHOLE and (value % 1 or value > _WHOLE[key]):
        raise InvalidRequestError(f"{key} is {value}, and has to be a whole number of at most {_WHOLE[key]}")


def described(entity: QuotaEntity) -> str:
    """Returns an entity in words, such as `user alice, client-id <default>`."""
    return ", ".join(f"{part.kind} {'<default>' if part.name is None else part.name}" for part in entity)


# ---- which quota counts ----------------------------------------------------------------------------------------------

_ABSENT: Final = ""
"""Stands for a part that an entity does not have, where None is the default."""

QuotaParts: TypeAlias = tuple[str | None, str | None]
"""The user and the client id of an entity, each with a sign before it; None: the default, "": there is no such part."""


class Quota(NamedTuple):
    """A quota of a client.

    Attributes:
        rate: How much a second.
        owner: The user and the client id whose connections share it, as much of them as tells owners apart; None: whatever it is.
    """

    rate: float
    owner: tuple[str | None, str | None]


def quota_parts(entity: QuotaEntity) -> QuotaParts:
    """Returns an entity of users and client ids as `nearest_quota` asks for it."""
    names = {part.kind: _present(part.name) for part in entity}
    return names.get(USER, _ABSENT), names.get(CLIENT_ID, _ABSENT)


def quota_entity_of(parts: QuotaParts) -> QuotaEntity:
    """Returns the entity of parts (`quota_parts`)."""
    found = zip((CLIENT_ID, USER), reversed(parts), strict=True)
    return tuple(QuotaEntityPart(kind, name and name[1:]) for kind, name in found if name != _ABSENT)


def nearest_quota(
    limits_of: Callable[[QuotaParts], Mapping[str, float] | None], key: str, user: str, client_id: str
) -> Quota | None:
    """Returns the quota that counts for a client; None: it has none of this kind.

    The first that fits counts, of eight (KIP-13, KIP-55):

    | quota of                                 | shared by                                  |
    |------------------------------------------|--------------------------------------------|
    | a user and a client id, named or default | connections of this user and client id     |
    | a user, named or default                 | all of the user                            |
    | a client id, named or default            | all of the client id, whoever the user is  |

    Args:
        limits_of: The function that returns the quotas of an entity by their keys; None: it has none.
        key: The key of the quota.
        user: The name of the client's principal.
        client_id: The name that the client gives itself.
    """
    named_user, named_client = _present(user), _present(client_id)
    for of_user, of_client in (
        (named_user, named_client),
        (named_user, None),
        (named_user, _ABSENT),
        (None, named_client),
        (None, None),
        (None, _ABSENT),
        (_ABSENT, named_client),
        (_ABSENT, None),
    ):
        limits = limits_of((of_user, of_client))
        if limits is not None and (rate := limits.get(key)) is not None:
            owner_user = None if of_user == _ABSENT else user[:OWNER_CHARACTERS_MAX]
            return Quota(rate, (owner_user, None if of_client == _ABSENT else client_id[:OWNER_CHARACTERS_MAX]))
    return None


def _present(name: str | None) -> str | None:
    """Returns a name that is no `_ABSENT`, even where it is empty."""
    return None if name is None else f"={name}"


def _check_address(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        problem = f'"{shortened(name)}" is no address; write it in numbers, as 10.0.0.7 or 2001:db8::7'
        raise InvalidRequestError(problem) from None
