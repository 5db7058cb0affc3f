"""Delegation tokens: what lets a job act for a user for a time, without the user's password (KIP-48, KIP-373).

The metadata say of a token whose it is and how long it holds.  What proves that somebody has it is the HMAC of its id, made with a key
that only the nodes of the cluster know: no record and no snapshot has it.  A client logs in by SCRAM, with the id of the token for a
name, and its HMAC as base64 for a password.  Apart from what makes HMACs, so that who reads metadata does not load it.
"""

from __future__ import annotations

from msgspec import Struct


class DelegationToken(Struct, frozen=True):
    """What everybody may know of a token who may describe it; times are milliseconds since 1970.

    Attributes:
        token_id: The id, 22 characters.
        owner: The name of the user for whom it logs in.
        requester: The name of the user who asked for it.
        renewers: The names of further users who may renew and expire it.
        issue_timestamp_ms: When it was made.
        max_timestamp_ms: The time beyond which it cannot be renewed.
        expiry_timestamp_ms: When it ends to hold, unless it is renewed.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    def has_expired(self, wall_ms: int) -> bool:
        """Whether it held for a time that is over."""
        return min(self.max_timestamp_ms, self.expiry_timestamp_ms) < wall_ms

    def may_be_renewed_by(self, user: str) -> bool:
        """Whether a user may renew and expire it, and always describe it: its owner and its renewers."""
        return user == self.owner or user in self.renewers
