"""The console over HTTP: its routes, and what stands in front of all of them.

| what could go wrong                                      | what stands against it                                           |
|----------------------------------------------------------|------------------------------------------------------------------|
| a page elsewhere asks this one, by a name that it points at 127.0.0.1 | the Host header must name loopback                  |
| a page elsewhere reads answers                           | no CORS: the browser keeps them from it                          |
| a page elsewhere makes a browser change something        | changes need a header that only our own script can send, and `allow_changes` |
| a record holds a script                                  | texts are text nodes; the policy runs no script but our own files |
| answers stay in a cache                                  | no-store                                                         |
| a question takes for ever                                | `REQUEST_S`; streams end with their browser                      |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from replog.config.kinds import names_loopback
from replog.console import groups, letters, messages, overview, timeline, topics
from replog.console.asking import BODY_BYTES_MAX, answered, refused, streamed
from replog.console.context import CONTEXT, Context
from replog.console.settings import ConsoleSettings
from replog.errors import ReplogError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Lines = Callable[[web.Request], AsyncGenerator[Mapping[str, object]]]

REQUEST_S: Final = 25.0
CHANGE_HEADER: Final = "X-Replog-Console"
STATIC: Final = Path(__file__).parent / "static"

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_log = logging.getLogger(__name__)


def console_app(settings: ConsoleSettings) -> web.Application:
    """Makes the application; its client is opened and closed with it."""
    app = web.Application(middlewares=[_guarded], client_max_size=BODY_BYTES_MAX)
    app.cleanup_ctx.append(lambda app: _client(app, settings))
    asked: Mapping[str, Handler] = {
        "about": overview.about,
        "health": overview.health,
        "quorum": overview.quorum,
        "topics": topics.topics,
        "topic": topics.topic,
        "messages": messages.messages,
        "message": messages.message,
        "groups": groups.groups,
        "group": groups.group,
        "reset-preview": groups.preview,
        "letters": letters.letters,
        "timeline": timeline.timeline,
    }
    changes: Mapping[str, Handler] = {"reset": groups.reset, "redrive": letters.redrive}
    streams: Mapping[str, Lines] = {"search": messages.search, "tail": messages.tail}
    for name, handler in asked.items():
        app.router.add_get(f"/api/{name}", handler)
    for name, handler in changes.items():
        app.router.add_post(f"/api/{name}", handler)
    for name, lines in streams.items():
        app.router.add_get(f"/api/{name}", _stream(lines))
    app.router.add_get("/", _page)
    app.router.add_static("/static", STATIC)
    return app


async def _client(app: web.Application, settings: ConsoleSettings) -> AsyncIterator[None]:
    context = app[CONTEXT] = Context(settings)
    try:
        async with context.admin:
            context.start()
            yield
    finally:
        await context.close()


async def _page(_request: web.Request) -> web.FileResponse:
    return web.FileResponse(STATIC / "index.html")


def _stream(lines: Lines) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        with request.app[CONTEXT].streams.taken():
            return await streamed(request, lines(request), HEADERS)

    return handle


@web.middleware
async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lets nobody in who does not come from our page, and turns errors into answers."""
    try:
        _require_loopback(request)
        if request.method not in {"GET", "HEAD"}:
            _require_allowed_change(request)
        is_stream = request.path in {"/api/search", "/api/tail"}
        with request.app[CONTEXT].requests.taken():
            async with asyncio.timeout(None if is_stream else REQUEST_S):
                response = await handler(request)
    except web.HTTPException as error:
        response = answered({"error": error.text or error.reason}, error.status)
    except (ReplogError, TimeoutError) as error:
        response = refused(error)
    if not response.prepared:
        response.headers.update(HEADERS)
    return response


def _require_loopback(request: web.Request) -> None:
    if not names_loopback(request.host):
        raise web.HTTPForbidden(text=f"this console answers at 127.0.0.1 and localhost, not at {request.host}")


def _require_allowed_change(request: web.Request) -> None:
    if not request.app[CONTEXT].settings.allow_changes:
        raise web.HTTPForbidden(
            text="this console only shows: start it with --allow-changes (a broker's: console.allow.changes = true)"
        )
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if CHANGE_HEADER not in request.headers or site != "same-origin" or request.content_type != "application/json":
        raise web.HTTPForbidden(text=f"a change needs the header {CHANGE_HEADER}, which only the console's page sends")
