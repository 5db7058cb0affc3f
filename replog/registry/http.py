"""Confluent's REST interface of a schema registry: paths, parameters, bodies and errors, by aiohttp."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web
from msgspec.structs import replace

from replog._version import __version__
from replog.config.kinds import names_loopback
from replog.registry.contracts import properties_of
from replog.registry.model import (
    DEFAULT_CONTEXT,
    INVALID_LEVEL,
    INVALID_MODE,
    INVALID_SUBJECT,
    INVALID_VERSION,
    MODE_NOT_SET,
    SCHEMA_NOT_FOUND,
    CompatibilityLevel,
    RegistryMode,
    RegistryRefusedError,
    SchemaContent,
    SchemaKind,
    SubjectConfig,
    context_of,
    subject_in,
)
from replog.registry.service import RegistryService, configured, content_json, version_json
from replog.registry.state import LATEST, RegistryState

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")

BODY_BYTES_MAX: Final = 2 << 20
"""Of a request: a schema is text in JSON, in which each byte may need two."""

REQUESTS_MAX: Final = 256
"""Requests that are answered at once; further ones are refused with 503."""

EVERY_CONTEXT: Final = ":*:"
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_log = logging.getLogger(__name__)


class _Answer(NamedTuple):
    value: object


def application(service: RegistryService, cluster_id: str, *, is_local: bool) -> web.Application:
    """Returns the application that answers requests by a service.

    No page of a browser on this machine may use it, since nobody is asked for a password: a body is JSON by its header, which no form
    of another site can send, and nothing answers to a name that another site has given to this machine.

    Args:
        service: The service.
        cluster_id: The id of the cluster whose topic it is.
        is_local: Whether it listens on loopback only, and so answers to the names of that alone.
    """
    app = web.Application(middlewares=[_middleware(is_local=is_local)], client_max_size=BODY_BYTES_MAX)
    app.add_routes(_Handlers(service, cluster_id).routes())
    return app


def _middleware(*, is_local: bool) -> Any:
    running_count = 0

    @web.middleware
    async def answer(request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> web.StreamResponse:
        nonlocal running_count
        if running_count >= REQUESTS_MAX:
            return _refusal(503, 50301, f"{REQUESTS_MAX} requests are under way: ask again later")
        running_count += 1
        try:
            if is_local and not names_loopback(request.host):
                return _refusal(
                    403, 40301, f"this registry answers at 127.0.0.1 and localhost, not at {request.host[:100]}"
                )
            if request.body_exists and not _is_json(request):
                return _refusal(415, 415, f"HTTP 415 Unsupported Media Type: send {_CONTENT_TYPE}, or application/json")
            answered = await handler(request)
            return answered if isinstance(answered, web.StreamResponse) else _told(200, answered.value)
        except RegistryRefusedError as error:
            return _refusal(error.status, error.rest_code, str(error))
        except web.HTTPException as error:
            return _refusal(error.status, error.status, f"HTTP {error.status} {error.reason}")
        except Exception as error:  # noqa: BLE001 -- one request's; the others go on
            _log.exception("a request of the registry failed: %s %s", request.method, request.path)
            return _refusal(500, 50001, f"Internal Server Error: {type(error).__name__}")
        finally:
            running_count -= 1

    return answer


def _is_json(request: web.Request) -> bool:
    return request.content_type.startswith("application/") and request.content_type.endswith("json")


def _told(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type=_CONTENT_TYPE)


def _refusal(status: int, code: int, message: str) -> web.Response:
    return _told(status, {"error_code": code, "message": message})


class _Handlers:
    """One method for each request; the comment of each section names its paths."""

    def __init__(self, service: RegistryService, cluster_id: str) -> None:
        self._service = service
        self._cluster_id = cluster_id

    def routes(self) -> list[web.RouteDef]:
        """Returns which method answers which request; each path stands for the default context, and below `/contexts/C` for that one."""
        version = "/subjects/{subject}/versions/{version}"
        compatibility = "/compatibility/subjects/{subject}/versions"
        gets: dict[str, Any] = {
            "/": self._root,
            "/v1/metadata/id": self._metadata_id,
            "/v1/metadata/version": self._metadata_version,
            "/contexts": self._contexts,
            "/subjects": self._subjects,
            "/subjects/{subject}/versions": self._versions,
            version: self._version,
            f"{version}/schema": self._version_schema,
            f"{version}/referencedby": self._referenced_by,
            "/subjects/{subject}/metadata": self._with_metadata,
            "/schemas/types": self._types,
            "/schemas/guids/{guid}": self._schema_by_guid,
            "/schemas/ids/{id}": self._schema,
            "/schemas/ids/{id}/schema": self._schema_text,
            "/schemas/ids/{id}/subjects": self._schema_subjects,
            "/schemas/ids/{id}/versions": self._schema_versions,
            "/config": self._config,
            "/config/{subject}": self._config,
            "/mode": self._mode,
            "/mode/{subject}": self._mode,
        }
        posts: dict[str, Any] = {
            "/subjects/{subject}/versions": self._register,
            "/subjects/{subject}": self._look_up,
            compatibility: self._compatibility,
            f"{compatibility}/{{version}}": self._compatibility,
        }
        puts: dict[str, Any] = {
            "/config": self._set_config,
            "/config/{subject}": self._set_config,
            "/mode": self._set_mode,
            "/mode/{subject}": self._set_mode,
        }
        deletes: dict[str, Any] = {
            "/subjects/{subject}": self._delete_subject,
            version: self._delete_version,
            "/config": self._drop_config,
            "/config/{subject}": self._drop_config,
            "/mode": self._drop_mode,
            "/mode/{subject}": self._drop_mode,
        }
        every = {"GET": gets, "POST": posts, "PUT": puts, "DELETE": deletes}
        return [
            web.route(method, base + path, handler)
            for base in ("", "/contexts/{context}")
            for method, some in every.items()
            for path, handler in some.items()
        ]

    # ---- the server ------------------------------------------------------------------------------------------------

    async def _root(self, _: web.Request) -> _Answer:
        return _Answer({})

    async def _metadata_id(self, _: web.Request) -> _Answer:
        return _Answer({"scope": {"path": [], "clusters": {"kafka-cluster": self._cluster_id}}})

    async def _metadata_version(self, _: web.Request) -> _Answer:
        return _Answer({"version": f"replog {__version__}", "commitId": ""})

    async def _contexts(self, request: web.Request) -> _Answer:
        found = {DEFAULT_CONTEXT, *map(context_of, await self._service.read(RegistryState.subjects))}
        return _Answer(_page(request, sorted(found)))

    async def _types(self, _: web.Request) -> _Answer:
        return _Answer([SchemaKind.JSON, SchemaKind.PROTOBUF, SchemaKind.AVRO])

    # ---- subjects --------------------------------------------------------------------------------------------------

    async def _subjects(self, request: web.Request) -> _Answer:
        prefix = request.query.get("subjectPrefix", "" if "context" in request.match_info else EVERY_CONTEXT)
        deleted, only = _deleted(request)
        names = await self._service.read(lambda state: state.subjects(deleted=deleted, deleted_only=only))
        return _Answer(_page(request, [name for name in names if _begins(name, prefix, _context(request))]))

    async def _versions(self, request: web.Request) -> _Answer:
        subject, (deleted, only) = _subject(request), _deleted(request)
        found = await self._service.read(lambda state: state.versions_or_raise(subject, deleted=deleted or only))
        return _Answer(_page(request, [each.version for each in found if each.deleted or not only]))

    async def _version(self, request: web.Request) -> _Answer:
        subject, number, deleted = _subject(request), _number(request), _flag(request, "deleted")
        ask = self._service.read if number == LATEST else self._service.find
        found = await ask(lambda state: state.version(subject, number, deleted=deleted))
        return _Answer(version_json(found) | await self._content(request, context_of(subject), found.content))

    async def _with_metadata(self, request: web.Request) -> _Answer:
        subject, deleted = _subject(request), _flag(request, "deleted")
        wanted = dict(zip(request.query.getall("key", []), request.query.getall("value", []), strict=False))
        every = await self._service.read(lambda state: state.versions_or_raise(subject, deleted=deleted))
        found = [each for each in every if wanted.items() <= properties_of(each.content.metadata).items()]
        if not found:
            raise RegistryRefusedError(SCHEMA_NOT_FOUND, "Schema not found")
        told = await self._content(request, context_of(subject), found[-1].content)
        return _Answer(version_json(found[-1]) | told)

    async def _version_schema(self, request: web.Request) -> web.Response:
        subject, number, deleted = _subject(request), _number(request), _flag(request, "deleted")
        ask = self._service.read if number == LATEST else self._service.find
        found = await ask(lambda state: state.version(subject, number, deleted=deleted))
        return _text(found.content)

    async def _referenced_by(self, request: web.Request) -> _Answer:
        subject, number = _subject(request), _number(request)

        def question(state: RegistryState) -> list[int]:
            found = state.version(subject, number, deleted=True)
            return sorted({each.id for each in state.referrers(subject, found.version)})

        return _Answer(_page(request, await self._service.read(question)))

    async def _register(self, request: web.Request) -> _Answer:
        normalize = _flag(request, "normalize")
        found = await self._service.register(_subject(request), await request.read(), normalize=normalize)
        return _Answer(version_json(found))

    async def _look_up(self, request: web.Request) -> _Answer:
        flags = {name: _flag(request, name) for name in ("deleted", "normalize")}
        return _Answer(version_json(await self._service.look_up(_subject(request), await request.read(), **flags)))

    async def _delete_subject(self, request: web.Request) -> _Answer:
        permanent = _flag(request, "permanent")
        return _Answer(await self._service.delete_subject(_subject(request), permanent=permanent))

    async def _delete_version(self, request: web.Request) -> _Answer:
        permanent = _flag(request, "permanent")
        return _Answer(await self._service.delete_version(_subject(request), _number(request), permanent=permanent))

    # ---- schemas by id ---------------------------------------------------------------------------------------------

    async def _schema(self, request: web.Request) -> _Answer:
        context, schema_id = _id(request)
        content = await self._service.find(lambda state: state.content(context, schema_id))
        return _Answer(await self._content(request, context, content))

    async def _schema_by_guid(self, request: web.Request) -> _Answer:
        context, schema_id = await self._service.find(lambda state: state.place(request.match_info["guid"]))
        content = await self._service.find(lambda state: state.content(context, schema_id))
        return _Answer({"id": schema_id, **await self._content(request, context, content)})

    async def _content(self, request: web.Request, context: str, content: SchemaContent) -> Any:
        """Returns a schema as it is asked for; `format=serialized`: of Protocol Buffers, its descriptor."""
        if request.query.get("format") == "serialized":
            content = await self._service.serialized(context, content)
        return content_json(content)

    async def _schema_text(self, request: web.Request) -> web.Response:
        place = _id(request)
        return _text(await self._service.find(lambda state: state.content(*place)))

    async def _schema_subjects(self, request: web.Request) -> _Answer:
        place, deleted = _id(request), _flag(request, "deleted")
        users = await self._service.read(lambda state: state.users(*place, deleted=deleted))
        return _Answer(_page(request, sorted({each.subject for each in users})))

    async def _schema_versions(self, request: web.Request) -> _Answer:
        place, deleted = _id(request), _flag(request, "deleted")
        users = await self._service.read(lambda state: state.users(*place, deleted=deleted))
        return _Answer(_page(request, [{"subject": each.subject, "version": each.version} for each in users]))

    # ---- compatibility ---------------------------------------------------------------------------------------------

    async def _compatibility(self, request: web.Request) -> _Answer:
        number = _number(request) if "version" in request.match_info else None
        problems = await self._service.compatibility(_subject(request), number, await request.read())
        told: dict[str, Any] = {"is_compatible": not problems}
        if _flag(request, "verbose"):
            told["messages"] = problems[:100]
        return _Answer(told)

    async def _config(self, request: web.Request) -> _Answer:
        subject, falls_back = _subject_or_all(request), _flag(request, "defaultToGlobal")

        def question(state: RegistryState) -> SubjectConfig:
            own = state.config_for(subject) if falls_back else configured(state, subject)
            return replace(own, compatibility=state.level_for(subject))

        return _Answer(_config_json(await self._service.read(question)))

    async def _set_config(self, request: web.Request) -> _Answer:
        given = _config_given(await request.read())
        return _Answer(await self._service.set_config(_subject_or_all(request), given))

    async def _drop_config(self, request: web.Request) -> _Answer:
        return _Answer(_config_json(await self._service.set_config(_subject_or_all(request), None)))

    # ---- modes -----------------------------------------------------------------------------------------------------

    async def _mode(self, request: web.Request) -> _Answer:
        subject, falls_back = _subject_or_all(request), _flag(request, "defaultToGlobal")

        def question(state: RegistryState) -> RegistryMode:
            found = state.mode_for(subject) if falls_back else state.mode(subject)
            if found is None:
                raise RegistryRefusedError(
                    MODE_NOT_SET, f"Subject '{subject}' does not have subject-level mode configured"
                )
            return found

        return _Answer({"mode": await self._service.read(question)})

    async def _set_mode(self, request: web.Request) -> _Answer:
        mode = _choice(await request.read(), "mode", RegistryMode, INVALID_MODE)
        set_mode, subject, is_forced = self._service.set_mode, _subject_or_all(request), _flag(request, "force")
        return _Answer({"mode": await set_mode(subject, mode, is_forced=is_forced)})

    async def _drop_mode(self, request: web.Request) -> _Answer:
        return _Answer({"mode": await self._service.set_mode(_subject_or_all(request), None)})


def _subject(request: web.Request) -> str:
    """Returns the name by which the subject in a path is kept; without one, or with a context alone, it is empty but for that."""
    return subject_in(_context(request), request.match_info.get("subject", ""))


def _subject_or_all(request: web.Request) -> str | None:
    """Returns the subject in a path, or its context; None where it is of all."""
    return _subject(request) or None


def _context(request: web.Request) -> str:
    """Returns the context whose path was asked for.

    Raises:
        RegistryRefusedError: 42208: it is no name of one.
    """
    context = request.match_info.get("context", DEFAULT_CONTEXT).strip(":")
    if not context.startswith(".") or ":" in context:
        raise RegistryRefusedError(
            INVALID_SUBJECT, f"the name of a context begins with a dot and has no colon, unlike {context[:100]!r}"
        )
    return context


def _id(request: web.Request) -> tuple[str, int]:
    """Returns the id in a path, and the context that it is of: that of the `subject` in the query, if there is one."""
    subject = subject_in(_context(request), request.query.get("subject", ""))
    return context_of(subject), _whole(request.match_info["id"])


def _begins(subject: str, prefix: str, context: str) -> bool:
    """Returns whether a subject begins with a prefix; one without a context is of `context`."""
    if prefix.startswith(EVERY_CONTEXT):
        context, prefix = context_of(subject), prefix.removeprefix(EVERY_CONTEXT)
    whole = subject_in(context, prefix)
    return context_of(subject) == context_of(whole) and subject.startswith(whole)


def _page(request: web.Request, found: list[T]) -> list[T]:
    """Returns the part of a list that is asked for, by `offset` and `limit`; a negative limit is none."""
    offset, limit = (_whole(request.query.get(name, "")) for name in ("offset", "limit"))
    rest = found[max(offset, 0) :]
    return rest if limit < 0 else rest[:limit]


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def _deleted(request: web.Request) -> tuple[bool, bool]:
    """Returns whether deleted ones are asked for, too, and whether they alone are; Confluent's client for Python writes `deleted_only`."""
    return _flag(request, "deleted"), _flag(request, "deletedOnly") or _flag(request, "deleted_only")


def _number(request: web.Request) -> int:
    """Returns the version in a path.

    Raises:
        RegistryRefusedError: 42202: it is none.
    """
    text = request.match_info["version"]
    if text in {"latest", "-1"}:
        return LATEST
    number = _whole(text)
    if number < 1:
        raise RegistryRefusedError(
            INVALID_VERSION,
            f"The specified version '{text[:20]}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
            'string "latest"',
        )
    return number


def _whole(text: str) -> int:
    """Returns a whole number from 0 to 2^31-1; -1 where it is none, which nothing has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) < 1 << 31 else LATEST - 1


def _choice(body: bytes, name: str, kind: type[E], code: int) -> E:
    try:
        return kind(str(msgspec.json.decode(body)[name]).upper())
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, KeyError, TypeError):
        raise RegistryRefusedError(
            code, f"Invalid {name}: the body is an object with {name!r}, one of {', '.join(kind)}"
        ) from None


def _config_given(body: bytes) -> Mapping[str, object]:
    """Returns the settings that a request changes.

    Raises:
        RegistryRefusedError: 42203: there is none, or one that nobody would apply, such as rules for all schemas, or an alias.
    """
    known = SubjectConfig.__struct_encode_fields__
    why = "nothing is set"
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
        given = {name: value for name, value in found.items() if value or name in known}
        if isinstance(level := given.get("compatibility"), str):
            given["compatibility"] = level.upper()
        msgspec.convert(given, SubjectConfig)
        if given:
            return given
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error)
    raise RegistryRefusedError(
        INVALID_LEVEL,
        f"Invalid configuration: {why}; this registry knows {', '.join(known)}, the first being one of {', '.join(CompatibilityLevel)}",
    )


def _config_json(config: SubjectConfig) -> Mapping[str, object]:
    """Returns a configuration as a GET tells it: its level has another name than in a PUT."""
    told = msgspec.to_builtins(config)
    return {"compatibilityLevel": told.pop("compatibility"), **told}


def _text(content: SchemaContent) -> web.Response:
    return web.Response(body=content.text.encode(), content_type=_CONTENT_TYPE)
