"""The state of a registry: what the changes in its log come to, and what can be asked of it.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec.structs import asdict

from replog.registry.model import (
    DEFAULT_LEVEL,
    DEFAULT_MODE,
    NO_CONFIG,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    VERSION_NOT_FOUND,
    AddVersion,
    Change,
    CompatibilityLevel,
    DeleteVersions,
    RegistryMode,
    RegistryRefusedError,
    SchemaContent,
    SchemaReference,
    SchemaVersion,
    SetConfig,
    SetMode,
    SubjectConfig,
    context_of,
    subject_in,
)
from replog.registry.records import LoggedChange

T = TypeVar("T")

LATEST = -1
"""The version that stands for the last one."""


class RegistryState:
    """Subjects, schemas by id, levels and modes.  Each context has its own ids, and its subjects their names with it (`subject_in`).

    Attributes:
        revision: The number of changes that counted.
        schema_bytes: The characters of all schemas together, with their metadata and rules.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.schema_bytes = 0
        self._last_ids: dict[str, int] = {}
        self._contents: dict[tuple[str, int], SchemaContent] = {}
        self._ids: dict[tuple[str, SchemaContent], set[int]] = {}
        self._guids: dict[str, set[tuple[str, int]]] = {}
        self._subjects: dict[str, dict[int, SchemaVersion]] = {}
        self._users: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._configs: dict[str | None, SubjectConfig] = {}
        self._modes: dict[str | None, RegistryMode] = {}

    # ---- changes ---------------------------------------------------------------------------------------------------

    def apply(self, logged: LoggedChange) -> bool:
        """Applies a change in the log; returns whether it counts, that is, follows the last one that did."""
        if logged.revision != self.revision + 1:
            return False
        self.revision += 1
        self._replay(logged.change)
        return True

    def _replay(self, change: Change) -> None:
        match change:
            case AddVersion(subject, version, schema_id, content):
                self._add(SchemaVersion(subject, version, schema_id, content))
            case DeleteVersions(subject, versions, permanent):
                for version in versions:
                    self._delete(subject, version, permanent=permanent)
            case SetConfig(subject, config):
                _set_or_drop(self._configs, subject, None if config == NO_CONFIG else config)
            case SetMode(subject, mode):
                _set_or_drop(self._modes, subject, mode)

    def _add(self, added: SchemaVersion) -> None:
        context = context_of(added.subject)
        place = context, added.id
        self._last_ids[context] = max(self.last_id(context), added.id)
        if place not in self._contents:
            self._contents[place] = added.content
            self._ids.setdefault((context, added.content), set()).add(added.id)
            self._guids.setdefault(added.content.guid, set()).add(place)
            self.schema_bytes += added.content.size
        self._subjects.setdefault(added.subject, {})[added.version] = added
        self._users.setdefault(place, set()).add((added.subject, added.version))

    def _delete(self, subject: str, version: int, *, permanent: bool) -> None:
        versions = self._subjects.get(subject, {})
        found = versions.get(version)
        if found is None:  # no server of ours writes that
            return
        if not permanent:
            versions[version] = SchemaVersion(subject, version, found.id, found.content, deleted=True)
            return
        del versions[version]
        if not versions:
            del self._subjects[subject]
        context = context_of(subject)
        users = self._users[context, found.id]
        users.discard((subject, version))
        if not users:
            del self._users[context, found.id], self._contents[context, found.id]
            ids = self._ids[context, found.content]
            ids.discard(found.id)
            if not ids:
                del self._ids[context, found.content]
            guids = self._guids[found.content.guid]
            guids.discard((context, found.id))
            if not guids:
                del self._guids[found.content.guid]
            self.schema_bytes -= found.content.size

    # ---- questions -------------------------------------------------------------------------------------------------

    @property
    def versions_count(self) -> int:
        """The number of versions of all subjects."""
        return sum(map(len, self._subjects.values()))

    def last_id(self, context: str) -> int:
        """Returns the largest id that was ever given in a context; none is given again, also when its schema is deleted for good."""
        return self._last_ids.get(context, 0)

    def subjects(self, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Returns the names of subjects, sorted: those with a version that is not deleted, or all, or only the deleted ones."""
        found = []
        for name, versions in self._subjects.items():
            live = any(not each.deleted for each in versions.values())
            if (not live) if deleted_only else (live or deleted):
                found.append(name)
        return sorted(found)

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Returns the versions of a subject in order; none where it does not exist."""
        found = self._subjects.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def versions_or_raise(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Returns the versions of a subject, at least one.

        Raises:
            RegistryRefusedError: 40401: there is none.
        """
        found = self.versions(subject, deleted=deleted)
        if not found:
            raise RegistryRefusedError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SchemaVersion:
        """Returns one version; LATEST: the last one.

        Raises:
            RegistryRefusedError: 40401, 40402: there is no such subject, or version.
        """
        versions = self.versions_or_raise(subject, deleted=deleted)
        if number == LATEST:
            return versions[-1]
        for each in versions:
            if each.version == number:
                return each
        raise RegistryRefusedError(VERSION_NOT_FOUND, f"Version {number} not found.")

    def content(self, context: str, schema_id: int) -> SchemaContent:
        """Returns a schema by its id.

        Raises:
            RegistryRefusedError: 40403: there is none.
        """
        found = self._contents.get((context, schema_id))
        if found is None:
            raise RegistryRefusedError(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return found

    def place(self, guid: str) -> tuple[str, int]:
        """Returns a context, and the id there, of the schema with a GUID.

        Raises:
            RegistryRefusedError: 40403: there is none.
        """
        if guid not in self._guids:
            raise RegistryRefusedError(SCHEMA_NOT_FOUND, f"Schema {guid[:40]} not found")
        return min(self._guids[guid])

    def has_id(self, context: str, schema_id: int) -> bool:
        """Returns whether there is a schema with an id."""
        return (context, schema_id) in self._contents

    def users(self, context: str, schema_id: int, *, deleted: bool = False) -> list[SchemaVersion]:
        """Returns the versions that have a schema, by subject and number.

        Raises:
            RegistryRefusedError: 40403: there is no such schema.
        """
        self.content(context, schema_id)
        found = (self._subjects[subject][version] for subject, version in sorted(self._users[context, schema_id]))
        return [each for each in found if deleted or not each.deleted]

    def id_of(self, context: str, content: SchemaContent) -> int | None:
        """Returns the id of a schema, the smallest of several that were imported; None where it has none yet."""
        return min(self._ids.get((context, content), ()), default=None)

    def with_content(self, subject: str, content: SchemaContent) -> SchemaVersion | None:
        """Returns the last version of a subject, not deleted, with a schema; None: none has it."""
        found = [each for each in self.versions(subject) if each.content == content]
        return found[-1] if found else None

    def referrers(self, subject: str, version: int) -> list[SchemaVersion]:
        """Returns the versions, not deleted, that refer to this one."""
        return [
            each
            for name in sorted(self._subjects)
            for each in self.versions(name)
            if any(
                (subject_in(context_of(name), one.subject), one.version) == (subject, version)
                for one in each.content.references
            )
        ]

    def closure(self, context: str, content: SchemaContent) -> list[tuple[str, SchemaContent]]:
        """Returns what a schema of a context refers to, with the names it has there, each after what it refers to itself.

        Raises:
            RegistryRefusedError: 40401, 40402: something does not exist.
        """
        found: dict[tuple[str, str, int], tuple[str, SchemaContent]] = {}
        for each in self._referred(context, content.references):
            found.setdefault(each[0], each[1])
        return list(found.values())

    def _referred(
        self, context: str, references: tuple[SchemaReference, ...]
    ) -> Iterator[tuple[tuple[str, str, int], tuple[str, SchemaContent]]]:
        seen: set[tuple[str, str, int]] = set()
        waiting = [(context, each, False) for each in reversed(references)]
        while waiting:
            context, reference, is_done = waiting.pop()
            subject = subject_in(context, reference.subject)
            place = (reference.name, subject, reference.version)
            content = self.version(subject, reference.version, deleted=True).content
            if is_done:
                yield place, (reference.name, content)
            elif place not in seen:
                seen.add(place)
                waiting.append((context, reference, True))
                waiting.extend((context_of(subject), each, False) for each in reversed(content.references))

    def config(self, subject: str | None) -> SubjectConfig:
        """Returns what is set for a subject itself; None as subject: for all others."""
        return self._configs.get(subject, NO_CONFIG)

    def config_for(self, subject: str | None) -> SubjectConfig:
        """Returns what holds for a subject: each setting is its own, that of its context, or that of all others."""
        found: dict[str, Any] = {}
        for place in (None, _whole_context(subject), subject):
            found |= {name: value for name, value in asdict(self.config(place)).items() if value is not None}
        return SubjectConfig(**found)

    def mode(self, subject: str | None) -> RegistryMode | None:
        """Returns the mode that is set for a subject; None as subject: that of all others, which is always there."""
        return self._modes.get(subject) or (DEFAULT_MODE if subject is None else None)

    def level_for(self, subject: str | None) -> CompatibilityLevel:
        """Returns the level that holds for a subject."""
        return self.config_for(subject).compatibility or DEFAULT_LEVEL

    def mode_for(self, subject: str | None) -> RegistryMode:
        """Returns the mode that holds for a subject: its own, that of its context, or that of all others."""
        return self.mode(subject) or self.mode(_whole_context(subject)) or self.mode(None) or DEFAULT_MODE


def _whole_context(subject: str | None) -> str | None:
    """Returns the name under which a configuration and a mode of all of a subject's context are kept; None: they are those of all others."""
    return subject_in(context_of(subject or ""), "") or None


def _set_or_drop(table: dict[str | None, T], subject: str | None, given: T | None) -> None:
    if given is None:
        table.pop(subject, None)
    else:
        table[subject] = given
