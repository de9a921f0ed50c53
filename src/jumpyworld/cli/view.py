"""``jumpy view``: the browser page."""

import dataclasses
import sys
from typing import Annotated

import tyro

# jumpy view
# jumpy view runs/gcbc runs/ghm


@dataclasses.dataclass(frozen=True)
class View:
    """Open a page that shows why a plan was chosen.

    Click a goal or paint a reward; see the model's samples, the candidates, the chosen chain and
    what the search spent; step or play the real environment. Ctrl-C ends it.
    """

    checkpoint: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Folders of geometric horizon models and of their policies, in any order (default: the weights
    that ship with the package)."""
    port: int = 8642
    """Port to listen on; 0 for any free one."""
    host: str = "127.0.0.1"
    """Address to listen on; anything but loopback needs a token."""
    token: str | None = None
    """What a browser must know to use the page; at least 16 characters."""
    name: tuple[str, ...] = ()
    """Further host names under which the page may be asked for; needs a token."""
    candidates: int = 32
    """Sequences proposed for a plan."""
    ode_steps: int = 4
    """Euler steps of the model while planning; samples are drawn with the model's own."""
    browser: bool = False
    """Open the page in the default browser."""

    def run(self) -> None:
        """Load, listen, compile in the background."""
        from jumpyworld.errors import ConfigError, MissingExtraError

        if not (1 <= self.ode_steps <= 100 and 4 <= self.candidates <= 4096):
            raise ConfigError("--ode-steps must be from 1 to 100, --candidates from 4 to 4096")
        try:
            from jumpyworld.viewer.server import serve
        except ImportError as error:
            raise MissingExtraError(error.name or "starlette", "viewer") from error
        from jumpyworld.viewer.engine import Engine
        from jumpyworld.viewer.guard import Door
        from jumpyworld.viewer.opened import open_models
        from jumpyworld.viewer.thinking import Effort

        door = Door(self.host, self.port, self.token, self.name)
        models = open_models(self.checkpoint, lambda text: print(text, file=sys.stderr))
        serve(Engine(models, Effort.of(self.candidates, self.ode_steps)), door, self._announce)

    def _announce(self, address: str) -> None:
        print(f"jumpy view: {address}  (Ctrl-C ends it)", flush=True)
        if self.browser:
            import webbrowser

            webbrowser.open(address)
