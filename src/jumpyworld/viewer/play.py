"""The stream of a playing environment: a websocket on which frames come at a chosen pace.

    browser: {"token", "model", "proposal", "horizons", "discount", "replan_every", "seed",
             "speed"}
    server:  {"state", "moved", "plan"?, "total_ms"} again and again; {"done": why} at the end
    browser: {"speed": s} changes the pace; closing the socket stops the stage

One stage plays at a time; a browser that has not shown its token takes no turn.
"""

import asyncio
import time
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from jumpyworld.errors import JumpyError
from jumpyworld.viewer.engine import BusyError, Engine
from jumpyworld.viewer.fields import BadRequestError, Fields, parse
from jumpyworld.viewer.guard import Door, token_fits
from jumpyworld.viewer.session import NotReadyError

FRAMES = 15  # a second, at most; a faster pace takes several control steps at once
HELLO_SECONDS = 10.0
FASTEST = 200  # control steps a second


def play_route(engine: Engine, door: Door) -> Any:
    """Return the route's function."""
    playing = asyncio.Lock()

    async def play(socket: WebSocket) -> None:
        await socket.accept()
        try:
            # Before the turn is taken, or a stranger who says nothing would keep the stage.
            wish = await _hello(socket, door)
            if playing.locked():
                raise BusyError("the stage is playing already")
            async with playing:
                await _Player(engine, socket).run(wish)
        except WebSocketDisconnect:
            return
        except TimeoutError:
            await _end(socket, "nothing was asked")
        except (BusyError, NotReadyError, JumpyError) as error:
            await _end(socket, str(error) or "too many requests wait")

    return play


async def _hello(socket: WebSocket, door: Door) -> Fields:
    """Return the first message's wish, from a browser that knows the token."""
    async with asyncio.timeout(HELLO_SECONDS):
        wish = await _message(socket)
    if not token_fits(door.token, wish.pop("token", None)):
        raise BadRequestError("the token is missing or wrong")
    return Fields(wish)


async def _message(socket: WebSocket) -> dict[str, Any]:
    """Return the next message; ``receive_text`` would answer a binary one with a KeyError."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    if message.get("text") is None:
        raise BadRequestError("message: must be text")
    return parse(message["text"])


class _Player:
    def __init__(self, engine: Engine, socket: WebSocket):
        self._engine, self._socket = engine, socket
        self._speed = 20.0

    async def run(self, fields: Fields) -> None:
        session = self._engine.session(fields.word("model", tuple(self._engine.models)))
        proposal = fields.word("proposal", session.proposals)
        horizons = fields.horizons(session.segments(proposal))
        every, seed = fields.integer("replan_every", 1, 1000), fields.integer("seed", 0, 2**31 - 1)
        self._speed = fields.real("speed", 1, FASTEST)
        fields.end()
        listener = asyncio.create_task(self._listen())
        try:
            limit = session.stage.steps + session.scene.domain.max_episode_steps
            while not listener.done():
                begin = time.perf_counter()
                count = max(1, round(self._speed / FRAMES))
                frame = await self._engine.run(
                    lambda n=count: session.advance(n, proposal, horizons, every, seed)
                )
                total = time.perf_counter() - begin
                await _send(self._socket, {**frame, "total_ms": round(1e3 * total, 1)})
                if frame["state"]["reached"] or frame["state"]["step"] >= limit:
                    why = "the goal is reached" if frame["state"]["reached"] else "time is up"
                    await _end(self._socket, why)
                    return
                # Waiting for the listener is waiting for the next frame, or for the end.
                pause = max(0.0, count / self._speed - total)
                await asyncio.wait([listener], timeout=pause)
        finally:
            listener.cancel()

    async def _listen(self) -> None:
        """Take changes of pace until the browser goes away."""
        try:
            while True:
                fields = Fields(await _message(self._socket))
                self._speed = fields.real("speed", 1, FASTEST)
                fields.end()
        except (WebSocketDisconnect, JumpyError, RuntimeError):
            return


async def _end(socket: WebSocket, why: str) -> None:
    try:
        await _send(socket, {"done": " ".join(why.split())[:300]})
        await socket.close()
    except (RuntimeError, WebSocketDisconnect):
        return  # the browser has gone: nobody to tell


async def _send(socket: WebSocket, value: dict[str, Any]) -> None:
    """Send a message, to a browser that may be gone.

    Raises:
        WebSocketDisconnect: it is.
    """
    try:
        await socket.send_json(value)
    except RuntimeError as error:  # the server closed the stream, for what the browser had sent
        raise WebSocketDisconnect(1006) from error
