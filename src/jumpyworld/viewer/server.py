"""uvicorn around the app: one process, small limits, nothing logged that could hold a token."""

import logging
import socket
from collections.abc import Callable
from urllib.parse import quote

import uvicorn

from jumpyworld.errors import ConfigError
from jumpyworld.viewer.app import make_app
from jumpyworld.viewer.engine import Engine
from jumpyworld.viewer.guard import Door

CONNECTIONS = 64
MESSAGE_BYTES = 16 * 1024


def serve(engine: Engine, door: Door, ready: Callable[[str], None]) -> None:
    """Serve the page until interrupted.

    Args:
        engine: computes.
        door: where to listen and whom to let in.
        ready: called with the page's address once it listens.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    server, listening, address = make_server(engine, door)
    ready(address)
    server.run(sockets=[listening])


def make_server(engine: Engine, door: Door) -> tuple[uvicorn.Server, socket.socket, str]:
    """Return a server, the socket that it is to listen on, and the page's address."""
    family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
    # Named as TCP, or asyncio does not know it for one and leaves Nagle's algorithm on: an answer
    # is written in two parts, and the second would wait 40 ms for the first one's receipt.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((door.host, door.port))
        listening.listen(CONNECTIONS)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"--host {door.host} --port {door.port}: cannot listen there ({error.strerror}); "
            "another port, or --port 0 for any free one"
        ) from error
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        make_app(engine, door),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=2,
        ws="websockets-sansio",
        ws_max_size=MESSAGE_BYTES,
        h11_max_incomplete_event_size=MESSAGE_BYTES,
        lifespan="on",
    )
    logging.getLogger("uvicorn.error").addFilter(_is_ours)
    # The token stands behind '#': browsers keep that part to themselves, so no log ever sees it.
    # Quoted, as the page reads it back like a query: '+', '&' and '%' would mean something else.
    secret = "" if door.token is None else f"#token={quote(door.token, safe='')}"
    return uvicorn.Server(config), listening, f"http://{door.shown()}:{port}/{secret}"


def _is_ours(record: logging.LogRecord) -> bool:
    """Keep a line that uvicorn logs, unless it is the traceback of text that is no text.

    uvicorn has closed that stream by then, with the code for it (1007): a browser's fault, and its
    alone, must not look like a defect of the server.
    """
    return not str(record.msg).startswith("Invalid UTF-8 sequence received from client")
