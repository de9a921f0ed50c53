"""Who may ask, and how much: Host, Origin, token, size and time of bodies, headers of answers.

A page on loopback is still reachable by every web site that its user visits. So a request must name
a host that is ours (a rebound DNS name is not), come from our own page where it comes from a page,
and be JSON, which no other site can send without asking first. With a token it must carry that too;
without one the server listens on loopback alone.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from jumpyworld.errors import ConfigError
from jumpyworld.viewer.fields import BadRequestError

BODY_BYTES = 64 * 1024
BODY_SECONDS = 10.0
TOKEN_CHARACTERS = 16
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]


@dataclass(frozen=True)
class Door:
    """Where the server listens, and whom it lets in.

    Attributes:
        host: address to listen on.
        port: the same; 0 lets the system choose.
        token: what every request must carry; None on loopback.
        names: further host names under which the page may be asked for.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    token: str | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError(f"--port {self.port}: must be from 0 to 65535")
        if self.token is not None and len(self.token) < TOKEN_CHARACTERS:
            raise ConfigError(f"--token: must have at least {TOKEN_CHARACTERS} characters")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError("--token: must be plain printable characters")
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host}: others could reach it; give a --token, or listen on 127.0.0.1"
            )
        if self.token is None and self.names:
            raise ConfigError(
                f"--name {' '.join(self.names)}: needs a --token, as others could ask by that name"
            )

    def hosts(self) -> set[str]:
        """Return the names, without port and in small letters, by which the page may be asked for.

        Host names know no case: requests are compared in small letters too.
        """
        ours = ("127.0.0.1", "localhost", "[::1]", *self.names, self.shown())
        return {name.lower() for name in ours}

    def shown(self) -> str:
        """Return the host of the address that is printed: one that a browser can ask for."""
        if not is_everywhere(self.host):
            return bracketed(self.host)
        return self.names[0] if self.names else "[::1]" if ":" in self.host else "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Say whether an address is this machine's own alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_everywhere(host: str) -> bool:
    """Say whether an address stands for all of a machine's own, and is none to ask for."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """Return a host as a URL writes it."""
    return f"[{host}]" if ":" in host else host


class Guard:
    """ASGI middleware: refuses what the module's text says, and dresses every answer."""

    def __init__(self, app: Asgi, door: Door):
        """Wrap an app."""
        self._app, self._door, self._hosts = app, door, door.hosts()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer one request, or let it through."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is None:
            await self._app(scope, receive, _dressed(send))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            status, text = refused
            answer = JSONResponse({"error": text}, status)
            await answer(scope, receive, _dressed(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = _headers(scope)
        host = headers.get("host", [])
        if len(host) != 1 or _without_port(host[0]) not in self._hosts:
            return 403, "this host name is not ours; jumpy view takes further ones by --name"
        origin, site = headers.get("origin", []), headers.get("sec-fetch-site", [])
        if origin and origin != [f"http://{host[0]}"] and origin != [f"https://{host[0]}"]:
            return 403, "another site may not ask"
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        if changes and any(word not in ("same-origin", "none") for word in site):
            return 403, "another site may not ask"
        if scope["type"] == "websocket":
            return None if origin else (403, "a stream needs an origin")  # its token comes inside
        if changes and headers.get("content-type") != ["application/json"]:
            return 415, "send application/json"
        if scope["path"].startswith("/api/") and not self._knows(headers):
            return 401, "the token is missing or wrong"
        return None

    def _knows(self, headers: dict[str, list[str]]) -> bool:
        given = headers.get("authorization", [""])[0].removeprefix("Bearer ")
        return token_fits(self._door.token, given)


def token_fits(token: str | None, given: Any) -> bool:
    """Say whether a token is the right one, in a time that tells nothing."""
    if token is None:
        return True
    # Ours is ASCII. What is not may have no bytes to compare: JSON can spell half a character.
    plain = isinstance(given, str) and given.isascii()
    return plain and hmac.compare_digest(token.encode(), given.encode())


async def read_body(request: Request) -> bytes:
    """Return a body within the limits.

    Raises:
        BadRequestError: it is too large or too slow.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES:
                    raise BadRequestError(f"body: more than {BODY_BYTES} bytes")
    except TimeoutError as error:
        raise BadRequestError("body: came too slowly") from error
    return bytes(body)


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    pairs: Iterable[tuple[bytes, bytes]] = scope["headers"]
    for name, value in pairs:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()


def _dressed(send: Any) -> Any:
    async def wrapped(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
            message["headers"] = [*message.get("headers", []), *more]
        await send(message)

    return wrapped
