"""Static members: a process that keeps its instance id is the same member when it comes back (KIP-345)."""

from __future__ import annotations

from replog.errors import FencedInstanceIdError, UnknownMemberIdError


def check_instance(holder: str | None, instance_id: str, member_id: str) -> None:
    """Checks that a member asks for an instance id that is its own.

    Args:
        holder: The member whose instance id it is; None where nobody has it.
        instance_id: The instance id.
        member_id: The member that asks.

    Raises:
        UnknownMemberIdError: Nobody has this instance id.
        FencedInstanceIdError: Another member has it.
    """
    if holder is None:
        raise UnknownMemberIdError(f"the group has no instance {instance_id!r}: join it anew")
    if holder != member_id:
        raise FencedInstanceIdError(
            f"instance {instance_id!r} is member {holder!r} now: two processes use the same instance id"
        )
