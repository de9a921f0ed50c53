"""``jumpy view``: the browser page."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from jumpyworld.domains import Domain
    from jumpyworld.planning import Places, Traces

# jumpy view
# jumpy view runs/gcbc runs/ghm --precedents data/large


@dataclasses.dataclass(frozen=True)
class View:
    """Open a page that shows why a plan was chosen.

    Click a goal or paint a reward; see the model's samples, the candidates, the chosen chain and
    what the search spent; step or play the real environment. Ctrl-C ends it.
    """

    checkpoint: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Folders of geometric horizon models and of their policies, in any order (default: the weights
    that ship with the package)."""
    precedents: Path | None = None
    """A data set of the models' domain, or a file of places: candidates are then made of
    it, as bridges (mazes) or traces (cubes), and in mazes jumps of the model that the data never
    made are refused. The weights that ship with the package bring such a file."""
    port: int = 8642
    """Port to listen on; 0 for any free one."""
    host: str = "127.0.0.1"
    """Address to listen on; anything but loopback needs a token."""
    token: str | None = None
    """What a browser must know to use the page; at least 16 characters."""
    name: tuple[str, ...] = ()
    """Further host names under which the page may be asked for; needs a token."""
    candidates: int = 32
    """Sequences proposed for a plan; half as many bridges or traces, which are longer."""
    ode_steps: int = 3
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
        from jumpyworld.viewer.candidates import Effort
        from jumpyworld.viewer.engine import Engine
        from jumpyworld.viewer.guard import Door
        from jumpyworld.viewer.opened import open_models

        door = Door(self.host, self.port, self.token, self.name)
        models = open_models(self.checkpoint, lambda text: print(text, file=sys.stderr))
        if self.precedents is not None:
            domains = {model.domain.name: model.domain for model in models}
            known = {name: self._known(domain) for name, domain in domains.items()}
            models = [dataclasses.replace(m, known=known[m.domain.name]) for m in models]
        serve(Engine(models, Effort.of(self.candidates, self.ode_steps)), door, self._announce)

    def _known(self, domain: "Domain") -> "Places | Traces":
        """Return what the data know of a domain."""
        from jumpyworld.cli.models import load_places, load_traces
        from jumpyworld.domains import MazeDomain
        from jumpyworld.planning.precedents import SHARE
        from jumpyworld.viewer.known import read_places

        assert self.precedents is not None
        if self.precedents.suffix == ".safetensors":
            return read_places(self.precedents, domain)
        if isinstance(domain, MazeDomain):
            return load_places(self.precedents, domain, SHARE)[0]
        return load_traces(self.precedents, domain)[0]

    def _announce(self, address: str) -> None:
        wait = "plans come when it has compiled, in half a minute"
        print(f"jumpy view: {address}  ({wait}; Ctrl-C ends it)", flush=True)
        self._tell_of_names()
        if self.browser:
            import webbrowser

            webbrowser.open(address)

    def _tell_of_names(self) -> None:
        from jumpyworld.viewer.guard import is_everywhere

        if is_everywhere(self.host) and not self.name:
            text = "other machines are refused until --name says what they call this one"
            print(f"jumpy view: {text}, as in --name 192.168.1.4", file=sys.stderr, flush=True)
