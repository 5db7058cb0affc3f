"""Quotas of clients: of whom, of what, and how much.

A quota belongs to an entity: a user, a client id, both together, or an address.  A part without a name is the default of all that have
none of their own (KIP-546, KIP-612).

    user "alice", client-id "loader"     what alice's clients of this name may do together
    user <default>                       what each user may do that has no quota
    ip "10.0.0.7"                        what comes from one address
"""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias

from replog.errors import InvalidRequestError, PolicyViolationError
from replog.metadata.config_keys import shortened
from replog.metadata.records import QuotaEntityPart

QuotaEntity: TypeAlias = tuple[QuotaEntityPart, ...]
"""Each kind at most once, in the order of their names."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
ADDRESS: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"

CLIENT_KEYS: Final = {
    PRODUCER_BYTE_RATE: "bytes a second that are produced",
    CONSUMER_BYTE_RATE: "bytes a second that are fetched",
}
"""What a user or a client id may have a quota of."""

_UNMEASURED: Final = {
    "request_percentage": "no broker here measures the time of its requests",
    "controller_mutation_rate": "no broker here counts the partitions that a client creates and deletes",
    "connection_creation_rate": "no broker here counts the connections of an address",
}
_NAME_CHARACTERS_MAX: Final = 1024
_INT64_MAX: Final = (1 << 63) - 1


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
        if part.name is not None and len(part.name) > _NAME_CHARACTERS_MAX:
            raise InvalidRequestError(
                f"the name of a quota's {part.kind} has at most {_NAME_CHARACTERS_MAX} characters"
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
        InvalidRequestError: It has no such quota, or the number is not above 0, or is a fraction of a byte.
        PolicyViolationError: Kafka has such a quota, and brokers here do not keep it.
    """
    if key in _UNMEASURED:
        raise PolicyViolationError(f"{key} is not kept: {_UNMEASURED[key]}; set {', '.join(CLIENT_KEYS)}")
    keys = () if entity[0].kind == ADDRESS else CLIENT_KEYS
    if key not in keys:
        raise InvalidRequestError(
            f'there is no quota "{shortened(key)}" of {described(entity)}; there is {", ".join(keys) or "none"}'
        )
    if not 0 < value <= _INT64_MAX:  # which also is not so for NaN
        raise InvalidRequestError(f"{key} is {value}, and has to be above 0; remove it to have no limit")
    if value % 1:
        raise InvalidRequestError(f"{key} is {value}, and has to be a whole number")


def described(entity: QuotaEntity) -> str:
    """Returns an entity in words, such as `user alice, client-id <default>`."""
    return ", ".join(f"{part.kind} {'<default>' if part.name is None else part.name}" for part in entity)


def _check_address(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        problem = f'"{shortened(name)}" is no address; write it in numbers, as 10.0.0.7 or 2001:db8::7'
        raise InvalidRequestError(problem) from None
