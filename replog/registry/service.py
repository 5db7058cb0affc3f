"""What a registry is asked for, beside how it is asked: answers as objects of JSON, by the state, and changes by its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from replog.registry.change_log import ChangeLog
from replog.registry.contracts import Metadata, RuleSet, contract_text, properties_of
from replog.registry.formats.protobuf import serialized
from replog.registry.formats.table import FORMATS, ParsableSchema, incompatibilities, normal_text, parsed
from replog.registry.model import (
    INCOMPATIBLE,
    INVALID_SCHEMA,
    INVALID_SUBJECT,
    LEVEL_NOT_SET,
    MODE_NOT_SET,
    NO_CONFIG,
    NOT_PERMITTED,
    REFERENCE_EXISTS,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_FOUND,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    AddVersion,
    Change,
    CompatibilityLevel,
    DeleteVersions,
    RegistryMode,
    RegistryRefusedError,
    SchemaContent,
    SchemaKind,
    SchemaReference,
    SchemaVersion,
    SetConfig,
    SetMode,
    SubjectConfig,
    context_of,
    is_whole_context,
)
from replog.registry.state import RegistryState

T = TypeVar("T")

SCHEMA_BYTES_MAX: Final = 512 << 10
"""Of one schema; a record of the topic holds it, and brokers take a megabyte by default."""

REFERENCES_MAX: Final = 100
CLOSURE_MAX: Final = 1_000
"""Schemas that one refers to, directly or not."""

SUBJECT_LENGTH_MAX: Final = 255
ID_MAX: Final = (1 << 31) - 1
"""Of schemas and versions: a signed number of 32 bits stands in front of each value."""

VERSIONS_MAX: Final = 50_000
ALL_SCHEMAS_BYTES_MAX: Final = 256 << 20
"""What a server keeps in memory; more are not registered."""

CHECKS_MAX: Final = 4
"""Requests whose schemas are parsed and compared at once, in threads."""

_MISSING: Final = (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND, LEVEL_NOT_SET, MODE_NOT_SET)


class _Body(msgspec.Struct):
    """The body of a request that brings a schema."""

    schema: str
    schemaType: SchemaKind = SchemaKind.AVRO  # noqa: N815 -- as it stands in JSON
    references: tuple[SchemaReference, ...] | None = None
    id: int | None = None
    version: int | None = None
    metadata: Metadata | None = None
    ruleSet: RuleSet | None = None  # noqa: N815 -- likewise


class RegistryService:
    """The operations of a registry on its log.

    Args:
        log: The log of changes, started.
    """

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._checks = asyncio.Semaphore(CHECKS_MAX)

    async def read(self, question: Callable[[RegistryState], T]) -> T:
        """Returns what a question to the newest state gives: changes that any server has answered are in it.

        Raises:
            RegistryRefusedError: It is not there, or the brokers do not answer.
        """
        await self._log.refresh()
        return question(self._log.state)

    async def find(self, question: Callable[[RegistryState], T]) -> T:
        """Returns what a question for something that never changes gives; only what is not here is looked for in the newest state.

        Raises:
            RegistryRefusedError: As `read`.
        """
        try:
            return question(self._log.state)
        except RegistryRefusedError as error:
            if error.rest_code not in _MISSING:
                raise
        return await self.read(question)

    # ---- schemas ---------------------------------------------------------------------------------------------------

    async def register(self, subject: str, body: bytes, *, normalize: bool = False) -> SchemaVersion:
        """Registers a schema, or finds it in the subject.  Without metadata, or rules, it has those of the last version.

        Args:
            subject: The name of the subject.
            body: What the request says.
            normalize: Whether the schema is registered in the text that all spellings of it share.

        Raises:
            RegistryRefusedError: It is none (42201), does not follow those before it (409), or nothing may be registered (42205).
        """
        _require_subject(subject)
        given = _given(body)
        content = await self._content(subject, given, normalize=normalize)
        if (given.id or 0) > 0:
            return await self._import(subject, content, given)
        made: list[SchemaVersion] = []

        async def decide(state: RegistryState) -> Change | None:
            made.clear()
            whole = _with_inherited(content, given, state.versions(subject))
            if found := state.with_content(subject, content) or state.with_content(subject, whole):
                made.append(found)
                return None
            _require_mode(state, subject, RegistryMode.READWRITE)
            _require_bytes(whole)
            _require_room(state, whole)
            context = context_of(subject)
            schema_id = state.id_of(context, whole) or state.last_id(context) + 1
            added = AddVersion(subject, _next_version(state, subject), schema_id, whole)
            _require_numbers(added)
            if problems := await self._problems(state, subject, whole, _comparable(state, subject, whole)):
                level = state.level_for(subject)
                told = "; ".join(problems[:20])
                raise RegistryRefusedError(
                    INCOMPATIBLE,
                    f"Schema being registered is incompatible with an earlier schema for subject '{subject}' "
                    f"(compatibility {level}): {told}",
                )
            made.append(SchemaVersion(subject, added.version, added.id, whole))
            return added

        await self._log.change(decide)
        return made[0]

    async def _import(self, subject: str, content: SchemaContent, given: _Body) -> SchemaVersion:
        """Registers a schema with the id, and the version, that it has in another registry; compatible with nothing.

        Raises:
            RegistryRefusedError: The subject is not in the mode IMPORT, or the id or the version is another schema's (42205).
        """
        parsable = _parsable(await self.read(lambda state: state), context_of(subject), content)
        async with self._checks:
            await asyncio.to_thread(parsed, parsable)
        made: list[SchemaVersion] = []

        async def decide(state: RegistryState) -> Change | None:
            number = max(given.version or 0, 0)  # 0, and -1 of Confluent's clients: the next one
            added = AddVersion(subject, number or _next_version(state, subject), given.id or 0, content)
            same = [each for each in state.versions(subject) if (each.id, each.content) == (added.id, content)]
            made[:] = [each for each in same if number in {0, each.version}][:1]
            if made:
                return None
            _require_mode(state, subject, RegistryMode.IMPORT)
            _require_room(state, content)
            _require_numbers(added)
            _require_free(state, added)
            made[:] = [SchemaVersion(subject, added.version, added.id, content)]
            return added

        await self._log.change(decide)
        return made[0]

    async def _content(self, subject: str, given: _Body, *, normalize: bool) -> SchemaContent:
        content = _content_of(given)
        if not (normalize or (await self.read(lambda state: state.config_for(subject))).normalize):
            return content
        schema = _parsable(await self.read(lambda state: state), context_of(subject), content)
        async with self._checks:
            text = await asyncio.to_thread(normal_text, schema)
        references = tuple(sorted(set(content.references), key=msgspec.structs.astuple))
        content = replace(content, text=text, references=references)
        _require_bytes(content)
        return content

    async def look_up(self, subject: str, body: bytes, *, deleted: bool, normalize: bool = False) -> SchemaVersion:
        """Returns the version of a subject with this schema, or, with `normalize`, with the text that all spellings of it share.

        Without metadata, or rules, it may have any.

        Raises:
            RegistryRefusedError: 40401, 40403: there is no such subject, or none of its versions has it.
        """
        given = _given(body)
        content = await self._content(subject, given, normalize=normalize)

        def question(state: RegistryState) -> SchemaVersion:
            every = state.versions_or_raise(subject, deleted=deleted)
            alike = [each for each in every if _with_inherited(content, given, [each]) == each.content]
            found = [each for each in every if each.content == content] or alike
            if not found:
                raise RegistryRefusedError(SCHEMA_NOT_FOUND, "Schema not found")
            return found[-1]

        return await self.read(question)

    async def compatibility(self, subject: str, number: int | None, body: bytes) -> list[str]:
        """Returns why a schema may not follow a version, or those of its subject (None); nothing: it may.

        Raises:
            RegistryRefusedError: It is no schema, or there is no such version.
        """
        given = _given(body)
        await self._log.refresh()
        state = self._log.state
        content = _with_inherited(_content_of(given), given, state.versions(subject))
        earlier = _comparable(state, subject, content) if number is None else [state.version(subject, number)]
        return await self._problems(state, subject, content, earlier)

    async def _problems(
        self, state: RegistryState, subject: str, content: SchemaContent, earlier: Iterable[SchemaVersion]
    ) -> list[str]:
        """Parses a schema and compares it with others, in a thread: large ones take longer than a loop should wait."""
        context = context_of(subject)
        new = _parsable(state, context, content)
        others = [_parsable(state, context, each.content) for each in earlier]
        level = state.level_for(subject)
        async with self._checks:
            return await asyncio.to_thread(_parsed_problems, new, others, level)

    async def serialized(self, context: str, content: SchemaContent) -> SchemaContent:
        """Returns a schema of Protocol Buffers as the base64 of its descriptor; others as they are."""
        if content.kind is not SchemaKind.PROTOBUF:
            return content
        schema = _parsable(self._log.state, context, content)
        async with self._checks:
            text = await asyncio.to_thread(lambda: serialized(parsed(schema)))
        return replace(content, text=text)

    # ---- deletions -------------------------------------------------------------------------------------------------

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Deletes all versions of a subject, softly or for good; returns their numbers.

        Raises:
            RegistryRefusedError: It does not exist, is not deleted softly before, or others refer to it.
        """

        def choose(state: RegistryState) -> list[int]:
            every = state.versions_or_raise(subject, deleted=True)
            live = [each for each in every if not each.deleted]
            if permanent and live:
                raise RegistryRefusedError(
                    SUBJECT_NOT_SOFT_DELETED,
                    f"Subject '{subject}' was not deleted first before being permanently deleted",
                )
            if not permanent and not live:
                raise RegistryRefusedError(
                    SUBJECT_SOFT_DELETED,
                    f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
                )
            return [each.version for each in (every if permanent else live)]

        return await self._delete(subject, choose, permanent=permanent)

    async def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Deletes one version, softly or for good; returns its number.  Raises: As `delete_subject`."""

        def choose(state: RegistryState) -> list[int]:
            found = state.version(subject, number, deleted=True)
            if permanent and not found.deleted:
                raise RegistryRefusedError(
                    VERSION_NOT_SOFT_DELETED,
                    f"Subject '{subject}' Version {found.version} was not deleted first before being permanently deleted",
                )
            if not permanent and found.deleted:
                raise RegistryRefusedError(
                    VERSION_SOFT_DELETED,
                    f"Subject '{subject}' Version {found.version} was soft deleted. Set permanent=true to delete permanently",
                )
            return [found.version]

        return (await self._delete(subject, choose, permanent=permanent))[0]

    async def _delete(
        self, subject: str, choose: Callable[[RegistryState], list[int]], *, permanent: bool
    ) -> list[int]:
        chosen: list[int] = []

        async def decide(state: RegistryState) -> Change:
            _require_writable(state, subject)
            chosen[:] = choose(state)
            for version in chosen:
                if users := state.referrers(subject, version):
                    raise RegistryRefusedError(
                        REFERENCE_EXISTS,
                        f"Version {version} of '{subject}' is referred to by version {users[0].version} of '{users[0].subject}'",
                    )
            return DeleteVersions(subject, tuple(chosen), permanent)

        await self._log.change(decide)
        return chosen

    # ---- configurations and modes ----------------------------------------------------------------------------------

    async def set_config(self, subject: str | None, given: Mapping[str, object] | None) -> SubjectConfig:
        """Sets a configuration, or takes it back; returns it, or what it was.

        Args:
            subject: The subject; None: all that have no configuration of their own.
            given: The settings to change, by the names of `SubjectConfig` in JSON; None: all are taken back.

        Raises:
            RegistryRefusedError: 40408: there is none to take back.
        """
        told: list[SubjectConfig] = []

        async def decide(state: RegistryState) -> Change | None:
            before = configured(state, subject) if given is None else state.config(subject)
            after = msgspec.convert(msgspec.to_builtins(before) | given, SubjectConfig) if given else NO_CONFIG
            told[:] = [after if given else before]
            return None if state.config(subject) == after else SetConfig(subject, after)

        await self._log.change(decide)
        return told[0]

    async def set_mode(
        self, subject: str | None, mode: RegistryMode | None, *, is_forced: bool = False
    ) -> RegistryMode:
        """Sets a mode, or takes it back (None); returns the one that was set before, or holds.

        Args:
            subject: The subject; None: all that have no mode of their own.
            mode: The mode.
            is_forced: Whether IMPORT is set where there are schemas already, whose ids those to come may have.

        Raises:
            RegistryRefusedError: 40409: there is none to take back; 42205: there are schemas, and it is not forced.
        """
        before: list[RegistryMode] = []

        async def decide(state: RegistryState) -> Change | None:
            found = state.mode(subject)
            if found is None and mode is None:
                raise RegistryRefusedError(
                    MODE_NOT_SET, f"Subject '{subject}' does not have subject-level mode configured"
                )
            if mode is RegistryMode.IMPORT and mode != found and not is_forced:
                _require_none(state, subject)
            before[:] = [found or RegistryMode.READWRITE]
            return None if found == mode else SetMode(subject, mode)

        await self._log.change(decide)
        return mode or before[0]


def _given(body: bytes) -> _Body:
    try:
        return msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RegistryRefusedError(
            INVALID_SCHEMA, f"Invalid schema: the body is no request with one: {error}"
        ) from error


def _content_of(given: _Body) -> SchemaContent:
    contract = contract_text(given.metadata), contract_text(given.ruleSet)
    _require_bytes(SchemaContent(given.schemaType, given.schema, (), *contract))
    references = given.references or ()
    if len(references) > REFERENCES_MAX:
        raise RegistryRefusedError(
            INVALID_SCHEMA, f"Invalid schema: {len(references)} references, at most {REFERENCES_MAX}"
        )
    return SchemaContent(given.schemaType, FORMATS[given.schemaType].canonical(given.schema), references, *contract)


def _with_inherited(content: SchemaContent, given: _Body, versions: list[SchemaVersion]) -> SchemaContent:
    """Returns a schema with the metadata and the rules of the last of some versions where the request says nothing of them."""
    if not versions:
        return content
    last = versions[-1].content
    return replace(
        content,
        metadata=last.metadata if given.metadata is None else content.metadata,
        rule_set=last.rule_set if given.ruleSet is None else content.rule_set,
    )


def _comparable(state: RegistryState, subject: str, content: SchemaContent) -> list[SchemaVersion]:
    """Returns the versions that a schema must get on with: those of its compatibility group."""
    group = state.config_for(subject).compatibility_group
    if not group:
        return state.versions(subject)
    own = properties_of(content.metadata).get(group)
    return [each for each in state.versions(subject) if properties_of(each.content.metadata).get(group) == own]


def _require_bytes(content: SchemaContent) -> None:
    size = sum(len(text.encode(errors="surrogatepass")) for text in (content.text, content.metadata, content.rule_set))
    if size > SCHEMA_BYTES_MAX:
        raise RegistryRefusedError(
            INVALID_SCHEMA, f"Invalid schema: it has {size} bytes, at most {SCHEMA_BYTES_MAX} are taken"
        )


def _parsable(state: RegistryState, context: str, content: SchemaContent) -> ParsableSchema:
    try:
        closure = state.closure(context, content)
    except RegistryRefusedError as error:
        raise RegistryRefusedError(INVALID_SCHEMA, f"Invalid schema: a reference leads nowhere: {error}") from error
    if len(closure) > CLOSURE_MAX:
        raise RegistryRefusedError(INVALID_SCHEMA, f"Invalid schema: it refers to more than {CLOSURE_MAX} others")
    return ParsableSchema(content.kind, content.text, tuple((name, each.text) for name, each in closure))


def _parsed_problems(new: ParsableSchema, others: list[ParsableSchema], level: CompatibilityLevel) -> list[str]:
    parsed(new)  # also where nothing is compared, it must be a schema
    return incompatibilities(new, others, level)


def _require_subject(subject: str) -> None:
    if is_whole_context(subject) or len(subject) > SUBJECT_LENGTH_MAX or not subject.isprintable():
        raise RegistryRefusedError(
            INVALID_SUBJECT,
            f"a subject is 1 to {SUBJECT_LENGTH_MAX} printable characters, not {subject[:SUBJECT_LENGTH_MAX]!r}",
        )


def _require_writable(state: RegistryState, subject: str) -> None:
    if state.mode_for(subject) is RegistryMode.READONLY:
        raise RegistryRefusedError(NOT_PERMITTED, f"Subject '{subject}' is in read-only mode")


def _require_mode(state: RegistryState, subject: str, mode: RegistryMode) -> None:
    _require_writable(state, subject)
    if state.mode_for(subject) is not mode:
        name, how = ("import", "without") if mode is RegistryMode.IMPORT else ("read-write", "with")
        raise RegistryRefusedError(
            NOT_PERMITTED, f"Subject '{subject}' is not in {name} mode: set the mode {mode}, or register {how} an id"
        )


def _require_none(state: RegistryState, subject: str | None) -> None:
    if subject is None or is_whole_context(subject):
        is_used = any(name.startswith(subject or "") for name in state.subjects(deleted=True))
    else:
        is_used = bool(state.versions(subject, deleted=True))
    if is_used:
        raise RegistryRefusedError(
            NOT_PERMITTED,
            "Cannot import since there are schemas already, also such as are deleted softly: delete them for good, or ask with force=true",
        )


def _require_free(state: RegistryState, added: AddVersion) -> None:
    """Refuses an import that would change what an id or a version means to those who have it."""
    if added.version in {each.version for each in state.versions(added.subject, deleted=True)}:
        raise RegistryRefusedError(
            NOT_PERMITTED, f"Overwriting version {added.version} of '{added.subject}' is not permitted"
        )
    context = context_of(added.subject)
    if state.has_id(context, added.id) and state.content(context, added.id) != added.content:
        raise RegistryRefusedError(NOT_PERMITTED, f"Overwrite new schema with id {added.id} is not permitted.")


def _require_numbers(added: AddVersion) -> None:
    if not (0 < added.id <= ID_MAX and 0 < added.version <= ID_MAX):
        raise RegistryRefusedError(
            NOT_PERMITTED,
            f"id {added.id} and version {added.version} of '{added.subject}' must be from 1 to {ID_MAX}; the next id is one more than "
            "the largest that was ever registered or imported",
        )


def _next_version(state: RegistryState, subject: str) -> int:
    return 1 + max((each.version for each in state.versions(subject, deleted=True)), default=0)


def _require_room(state: RegistryState, content: SchemaContent) -> None:
    if state.versions_count >= VERSIONS_MAX or state.schema_bytes + content.size > ALL_SCHEMAS_BYTES_MAX:
        raise RegistryRefusedError(
            NOT_PERMITTED,
            f"the registry is full: it keeps {VERSIONS_MAX} versions and {ALL_SCHEMAS_BYTES_MAX >> 20} MiB of schemas; "
            "delete what is not used, for good",
        )


def configured(state: RegistryState, subject: str | None) -> SubjectConfig:
    """Returns what is configured for a subject itself, with the level that holds; None as subject: for all others.

    Raises:
        RegistryRefusedError: 40408: nothing is, and it is a subject.
    """
    found = state.config(subject)
    if subject is not None and found == NO_CONFIG:
        raise RegistryRefusedError(
            LEVEL_NOT_SET, f"Subject '{subject}' does not have subject-level compatibility configured"
        )
    return replace(found, compatibility=state.level_for(subject))


def version_json(version: SchemaVersion) -> Mapping[str, Any]:
    """Returns a version as clients get it."""
    told = {"subject": version.subject, "version": version.version, "id": version.id, **content_json(version.content)}
    return {**told, "deleted": True} if version.deleted else told


def content_json(content: SchemaContent) -> Mapping[str, Any]:
    """Returns a schema as clients get it: its kind is left out where it is Avro."""
    told: dict[str, Any] = {"schema": content.text, "guid": content.guid}
    if content.kind is not SchemaKind.AVRO:
        told["schemaType"] = content.kind
    if content.references:
        told["references"] = content.references
    for name, text in (("metadata", content.metadata), ("ruleSet", content.rule_set)):
        if text:
            told[name] = msgspec.Raw(text.encode())
    return told
