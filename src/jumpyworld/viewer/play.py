"""The stream of a playing environment: a websocket on which frames come at a chosen pace.

    browser: {"token", "model", "proposal", "horizons", "discount", "replan_every", "seed",
             "speed"}
    server:  {"state", "moved", "plan"?, "total_ms"} again and again; {"done": why} at the end
    browser: {"speed": s} changes the pace; closing the socket stops the stage

One stage plays at a time.
"""

import asyncio
import time
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from jumpyworld.errors import JumpyError
from jumpyworld.viewer.engine import BusyError, Engine
from jumpyworld.viewer.fields import Fields, parse
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
        if playing.locked():
            await _end(socket, "the stage is playing already")
            return
        async with playing:
            try:
                await _Player(engine, door, socket).run()
            except WebSocketDisconnect:
                return
            except TimeoutError:
                await _end(socket, "nothing was asked")
            except (BusyError, NotReadyError, JumpyError) as error:
                await _end(socket, str(error) or "too many requests wait")

    return play


class _Player:
    def __init__(self, engine: Engine, door: Door, socket: WebSocket):
        self._engine, self._door, self._socket = engine, door, socket
        self._speed = 20.0

    async def run(self) -> None:
        async with asyncio.timeout(HELLO_SECONDS):
            wish = parse(await self._socket.receive_text())
        if not token_fits(self._door.token, wish.pop("token", None)):
            await _end(self._socket, "the token is missing or wrong")
            return
        fields = Fields(wish)
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
                await self._socket.send_json({**frame, "total_ms": round(1e3 * total, 1)})
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
                fields = Fields(parse(await self._socket.receive_text()))
                self._speed = fields.real("speed", 1, FASTEST)
                fields.end()
        except (WebSocketDisconnect, JumpyError, RuntimeError):
            return


async def _end(socket: WebSocket, why: str) -> None:
    try:
        await socket.send_json({"done": " ".join(why.split())[:300]})
        await socket.close()
    except (RuntimeError, WebSocketDisconnect):
        return  # the browser has gone: nobody to tell
