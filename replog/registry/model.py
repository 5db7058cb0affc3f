"""What a registry holds: contents of schemas, versions of subjects, and the changes of them."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from replog.errors import ReplogError


class SchemaKind(StrEnum):
    """What a schema is written in, by the name that Confluent's REST has for it."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class CompatibilityLevel(StrEnum):
    """Which schemas a new one must get on with; `_TRANSITIVE`: all of the subject, else the last one."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class RegistryMode(StrEnum):
    """Whether schemas may be registered and deleted; IMPORT: registered with the ids that they have in another registry."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    IMPORT = "IMPORT"


class SubjectConfig(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """How schemas of a subject are taken; None: as its context, or all others, have it.

    Attributes:
        compatibility: Which schemas a new one must get on with.
        compatibility_group: The property of metadata whose value they share with it; "": all are compared.
        normalize: Whether schemas are registered and looked up as with `normalize=true`.
    """

    compatibility: CompatibilityLevel | None = None
    compatibility_group: str | None = None
    normalize: bool | None = None


NO_CONFIG: Final = SubjectConfig()
DEFAULT_LEVEL: Final = CompatibilityLevel.BACKWARD
DEFAULT_MODE: Final = RegistryMode.READWRITE


class SchemaReference(msgspec.Struct, frozen=True):
    """A name that a schema uses, and the version of a subject that defines it."""

    name: str
    subject: str
    version: int


class SchemaContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema by what it says; equal contents have one id in a context, in whatever subjects they are, and more only by an import.

    Attributes:
        kind: What it is written in.
        text: The schema.
        references: What it uses of others.
        metadata, rule_set: What is agreed on about its values, as `contract_text` returns it.
    """

    kind: SchemaKind
    text: str
    references: tuple[SchemaReference, ...] = ()
    metadata: str = ""
    rule_set: str = ""

    @property
    def size(self) -> int:
        """The characters of all that it says."""
        return len(self.text) + len(self.metadata) + len(self.rule_set)

    @property
    def guid(self) -> str:
        """The id that it has in every context and registry of ours: a UUID by what it says."""
        return str(UUID(bytes=hashlib.md5(msgspec.json.encode(self), usedforsecurity=False).digest()))


class SchemaVersion(msgspec.Struct, frozen=True):
    """A version of a subject.

    Attributes:
        subject: The name of the subject.
        version: From 1 on.
        id: The id of the content in the subject's context, from 1 on.
        content: The schema.
        deleted: It was deleted softly: it is found by its id, and where deleted ones are asked for.
    """

    subject: str
    version: int
    id: int
    content: SchemaContent
    deleted: bool = False


class AddVersion(msgspec.Struct, frozen=True, tag="version"):
    """Adds a version to a subject."""

    subject: str
    version: int
    id: int
    content: SchemaContent


class DeleteVersions(msgspec.Struct, frozen=True, tag="delete"):
    """Deletes versions of a subject, softly or for good."""

    subject: str
    versions: tuple[int, ...]
    permanent: bool


class SetConfig(msgspec.Struct, frozen=True, tag="config"):
    """Sets the configuration of a subject, or of all others."""

    subject: str | None
    config: SubjectConfig


class SetMode(msgspec.Struct, frozen=True, tag="mode"):
    """Sets the mode of a subject, or of all others; None as mode: takes it back."""

    subject: str | None
    mode: RegistryMode | None


Change = AddVersion | DeleteVersions | SetConfig | SetMode


DEFAULT_CONTEXT: Final = "."


def subject_in(context: str, subject: str) -> str:
    """Returns the name by which a subject is kept: `s` in the default context, `:.context:s` in another one.

    Args:
        context: The context of a subject that names none.
        subject: A subject, with or without its context; `:.context:` is all of a context.
    """
    if subject.startswith(":."):
        context, _, subject = subject[1:].partition(":")
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"


def context_of(subject: str) -> str:
    """Returns the context of a subject as it is kept."""
    return subject[1:].partition(":")[0] if subject.startswith(":.") else DEFAULT_CONTEXT


def is_whole_context(subject: str) -> bool:
    """Returns whether a name stands for all subjects of a context: it has a level and a mode, and no versions."""
    return subject == subject_in(context_of(subject), "")


class RegistryRefusedError(ReplogError):
    """A request that the registry does not carry out.

    Attributes:
        status: The status of HTTP.
        rest_code: Confluent's `error_code`.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.rest_code = code
        self.status = code if code < 1_000 else code // 100


INCOMPATIBLE: Final = 409
SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
LEVEL_NOT_SET: Final = 40408
MODE_NOT_SET: Final = 40409
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
INVALID_SUBJECT: Final = 42208
LOG_FAILED: Final = 50001
TIMED_OUT: Final = 50002
