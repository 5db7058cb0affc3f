"""What is agreed on about the values of a schema beside its text: metadata and rules, by the names of Confluent's data contracts.

A registry keeps and tells them, and takes schemas that differ in them for different ones.  It executes no rule: the serializers of
clients do, or refuse to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

Name = Annotated[str, msgspec.Meta(min_length=1)]


class Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tags of fields by their path, properties of the whole, and which of those are secrets."""

    tags: dict[str, frozenset[str]] | None = None
    properties: dict[str, str] | None = None
    sensitive: frozenset[str] | None = None


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel", omit_defaults=True):
    name: Name
    type: Name
    kind: Literal["CONDITION", "TRANSFORM"]
    doc: str | None = None
    tags: frozenset[str] | None = None
    params: dict[str, str] | None = None
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool | None = None


class MigrationRule(_Rule, frozen=True, kw_only=True):
    """A rule for values that were written with another version."""

    mode: Literal["UPGRADE", "DOWNGRADE", "UPDOWN"]


class ValueRule(_Rule, frozen=True, kw_only=True):
    """A rule for values that are written or read."""

    mode: Literal["WRITE", "READ", "WRITEREAD"]


class RuleSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The rules of a schema, in the order in which a serializer executes them; names are unique in each list."""

    migration_rules: list[MigrationRule] | None = None
    domain_rules: list[ValueRule] | None = None
    encoding_rules: list[ValueRule] | None = None
    enable_at: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for two rules of one name."""
        for rules in (self.migration_rules, self.domain_rules, self.encoding_rules):
            names = [rule.name for rule in rules or ()]
            if len(set(names)) < len(names):
                raise ValueError(f"two of the rules {', '.join(names)[:200]} have one name")


def contract_text(given: Metadata | RuleSet | None) -> str:
    """Returns metadata or rules as JSON, in the one spelling that all equal ones have; "": they say nothing."""
    told = {} if given is None else msgspec.to_builtins(given, order="sorted")
    said = {name: value for name, value in told.items() if value}
    return msgspec.json.encode(said, order="sorted").decode() if said else ""


def properties_of(metadata: str) -> Mapping[str, str]:
    """Returns the properties in metadata as `contract_text` returns it."""
    found = msgspec.json.decode(metadata, type=Metadata).properties if metadata else None
    return found or {}
