"""The page's routes: a few fixed files, and one POST for each thing that a user can do."""

import contextlib
import time
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute

from jumpyworld.errors import JumpyError
from jumpyworld.viewer.engine import BusyError, Engine
from jumpyworld.viewer.fields import BadRequestError, Fields, parse
from jumpyworld.viewer.guard import Door, Guard, read_body
from jumpyworld.viewer.play import play_route
from jumpyworld.viewer.session import NotReadyError, Session

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
SEED = 2**31 - 1

Work = Callable[[], dict[str, Any] | bytes]


def make_app(engine: Engine, door: Door, *, warm_up: bool = True) -> Guard:
    """Return the guarded app.

    Args:
        engine: computes.
        door: whom to let in.
        warm_up: compile when the server starts.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette):
        if warm_up:
            engine.warm_up()
        yield
        engine.close()

    files = _static_files()
    routes = [
        Route("/", _file(files["index.html"], "html")),
        *(Route(f"/{n}", _file(f, n.rsplit(".", 1)[-1])) for n, f in files.items()),
        Route("/api/status", _status(engine)),
        *(Route(f"/api/{n}", _post(engine, r), methods=["POST"]) for n, r in REQUESTS.items()),
        WebSocketRoute("/api/play", play_route(engine, door)),
    ]
    handlers: dict[Any, Any] = {HTTPException: _not_there, Exception: _defect}
    return Guard(Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers), door)


# What each request does: reads its fields, and returns the work to be done in turn.


def _scene(session: Session, fields: Fields) -> Work:
    return session.describe


def _reset(session: Session, fields: Fields) -> Work:
    task, seed = fields.integer("task", 1, 5), fields.integer("seed", 0, SEED)
    return lambda: session.reset(task, seed)


def _place(session: Session, fields: Fields) -> Work:
    start = fields.place("start")
    return lambda: session.place(start)


def _goal(session: Session, fields: Fields) -> Work:
    places = fields.places("places")
    return lambda: session.set_goal(places)


def _paint(session: Session, fields: Fields) -> Work:
    cells = fields.cells("cells")
    return lambda: session.paint(cells)


def _samples(session: Session, fields: Fields) -> Work:
    source: Any = fields.word("source", ("goal", "plan", "behaviour"))
    horizon, seed = fields.real("horizon", 1.0, 1e5), fields.integer("seed", 0, SEED)
    return lambda: session.samples(source, horizon, seed)


def _plan(session: Session, fields: Fields) -> Work:
    proposal = fields.word("proposal", session.proposals)
    horizons = fields.horizons(session.segments(proposal))
    seed = fields.integer("seed", 0, SEED)
    return lambda: session.plan(proposal, horizons, seed)


def _step(session: Session, fields: Fields) -> Work:
    proposal = fields.word("proposal", session.proposals)
    horizons = fields.horizons(session.segments(proposal))
    count, every = fields.integer("count", 1, 50), fields.integer("replan_every", 1, 1000)
    seed = fields.integer("seed", 0, SEED)
    return lambda: session.advance(count, proposal, horizons, every, seed)


def _frame(session: Session, fields: Fields) -> Work:
    return session.frame


REQUESTS: dict[str, Callable[[Session, Fields], Work]] = {
    "scene": _scene,
    "reset": _reset,
    "place": _place,
    "goal": _goal,
    "paint": _paint,
    "samples": _samples,
    "plan": _plan,
    "step": _step,
    "frame": _frame,
}


def _post(engine: Engine, read: Callable[[Session, Fields], Work]) -> Any:
    async def answer(request: Request) -> Response:
        begin = time.perf_counter()
        try:
            fields = Fields(parse(await read_body(request)))
            model = fields.word("model", tuple(engine.models))
            early = engine.drawing(model) if read is _scene else None
            work = read(early or engine.session(model), fields)
            fields.end()
            # While programs compile, the thread is taken; a scene only reads.
            waits = early is None or engine.is_ready(model)
            found = await engine.run(work) if waits else work()
        except NotReadyError as error:
            return _error(503, str(error), {"retry-after": "1"})
        except BusyError:
            return _error(503, "too many requests wait", {"retry-after": "1"})
        except BadRequestError as error:
            return _error(400, str(error))
        except JumpyError as error:  # the user's wish cannot be granted: a wall, a horizon
            return _error(422, str(error))
        if isinstance(found, bytes):
            return Response(found, media_type="image/png")
        total = round(1e3 * (time.perf_counter() - begin), 1)
        return JSONResponse({**found, "total_ms": total})

    return answer


def _status(engine: Engine) -> Any:
    async def answer(_: Request) -> Response:
        return JSONResponse(engine.status())

    return answer


# The page reads every answer below /api as JSON: errors of the routes themselves are no exception.


async def _not_there(request: Request, error: HTTPException) -> Response:
    if not _is_api(request):
        return PlainTextResponse(error.detail, error.status_code, error.headers)
    if error.status_code == 405 and error.headers:
        method = error.headers.get("Allow", "another method")
        return _error(405, f"{request.method}: this is asked by {method}", dict(error.headers))
    return _error(error.status_code, f"{request.url.path}: no such request", error.headers)


async def _defect(request: Request, error: Exception) -> Response:
    # Its traceback goes where the server was started; whoever asks learns no more than its kind.
    text = f"a defect of the server ({type(error).__name__}); its terminal says more"
    return _error(500, text) if _is_api(request) else PlainTextResponse(text, 500)


def _is_api(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    line = " ".join(text.split())[:500]
    return JSONResponse({"error": line}, status, headers)


def _static_files() -> dict[str, bytes]:
    """Read the page's files once; requests only ever choose among these names."""
    folder = resources.files("jumpyworld.viewer") / "static"
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.name.rsplit(".", 1)[-1] in TYPES
    }


def _file(content: bytes, kind: str) -> Any:
    async def answer(_: Request) -> Response:
        return Response(content, media_type=TYPES[kind])

    return answer
