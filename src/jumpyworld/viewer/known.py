"""What the data know of a maze, so that candidates can be made of it without the data.

    places, stays   runs of the data: which place, and for how many steps          [R], [R]
    lengths         steps of each trajectory                                       [E]
    centres         of the places                                                  [C, p]
    examples        some states of each place                                      [C, R, d]
    domain          the domain's name as bytes

All of it is one small safetensors file (a tenth of a megabyte for 200 episodes), which
``jumpy view --precedents`` takes instead of a data set. The demo's is made by

    jumpy data generate pointmaze-large --episodes 200 --seed 0 --out data
    python -m jumpyworld.viewer.known data src/jumpyworld/demo/places.safetensors
"""

import dataclasses
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import jumpyworld
from jumpyworld import data, domains
from jumpyworld.domains import Domain, MazeDomain
from jumpyworld.errors import CheckpointError, ConfigError, JumpyError, unwritable
from jumpyworld.planning import Places, find_places
from jumpyworld.planning.precedents import GoalFeatures, Precedents, usual_places
from jumpyworld.storage.tensors import check_writable, read_tensors, write_tensors

COUNTED = 24
_LONGEST_STAY = 255
_DTYPES = {
    "places": ("uint8", "uint16"),
    "stays": ("uint8",),
    "lengths": ("int32",),
    "centres": ("float32",),
    "examples": ("float32",),
    "domain": ("uint8",),
}


@dataclass(frozen=True, eq=False)
class Tabled(Places):
    """Places whose precedents are counted once for each of a few horizons.

    Sliders ask for any horizon, and counting its jumps takes longer than an answer may: a segment
    is given the table of the nearest horizon among these few. Every segment has a table, equal or
    not, so that the shape of a plan never changes.

    Attributes:
        horizons: the few.
        tables: those counted so far, by horizon [C, C].
    """

    horizons: tuple[float, ...] = (1.0,)
    tables: dict[float, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Places, longest: float, usual: tuple[float, ...]) -> "Tabled":
        """Return places for horizons up to the longest; the usual ones are counted exactly."""
        few = sorted({*np.geomspace(1.0, longest, COUNTED).tolist(), *usual})
        values = {f.name: getattr(places, f.name) for f in dataclasses.fields(Places)}
        return cls(**values, horizons=tuple(few))

    def precedents(self, betas: np.ndarray) -> Precedents:
        """Return which jumps are precedented in each segment."""
        tables = np.stack([self._table(1 / (1 - float(beta))) for beta in betas])
        return Precedents(
            jnp.asarray(self.centres),
            jnp.asarray(betas, jnp.float32),
            jnp.asarray(tables),
            self.features,
        )

    def count_all(self) -> None:
        """Count for every horizon."""
        for horizon in self.horizons:
            self._table(horizon)

    def _table(self, horizon: float) -> np.ndarray:
        near = min(self.horizons, key=lambda h: abs(math.log(h / horizon)))
        if near not in self.tables:
            counts = self.count(np.asarray([1 - 1 / near]))
            self.tables[near] = usual_places(counts[0], self.share)
        return self.tables[near]


def demo_places() -> Path | None:
    """Return the file that ships beside the demo's weights, if one does."""
    path = Path(jumpyworld.__file__).parent / "demo" / "places.safetensors"
    return path if path.is_file() else None


def write_places(path: Path, places: Places, domain: Domain) -> int:
    """Write places to a file; return its size in bytes.

    Raises:
        CheckpointError: something in them has no file form.
        DataError: the file cannot be written.
    """
    labels, ends = places.labels, np.asarray(places.ends)
    starts = np.r_[0, ends[:-1] + 1]
    # A run ends where the place changes, with its trajectory, and when its byte is full.
    begins = np.r_[True, labels[1:] != labels[:-1]]
    begins[starts] = True
    rows = np.arange(len(labels))
    since = rows - np.maximum.accumulate(np.where(begins, rows, 0))
    runs = np.flatnonzero(since % _LONGEST_STAY == 0)
    arrays = {
        "places": labels[runs].astype("uint8" if len(places.centres) <= 256 else "uint16"),
        "stays": np.diff(runs, append=len(labels)).astype(np.uint8),
        "lengths": np.diff(ends, prepend=-1).astype(np.int32),
        "centres": np.asarray(places.centres, np.float32),
        "examples": np.asarray(places.examples, np.float32),
        "domain": np.frombuffer(domain.name.encode(), np.uint8),
    }
    check_writable(arrays, path)
    try:
        return write_tensors(path, arrays)["size"]
    except OSError as error:
        raise unwritable(path, error) from error


def read_places(path: Path, domain: Domain) -> Places:
    """Read places of a domain from a file.

    Raises:
        CheckpointError: it cannot be read, is no such file, or is of another domain.
    """
    try:
        arrays = read_tensors(path.read_bytes(), path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error
    if arrays.keys() != _DTYPES.keys():
        raise CheckpointError(f"{path}: holds {', '.join(sorted(arrays))[:200]}, not places")
    for name, allowed in _DTYPES.items():
        if arrays[name].dtype.name not in allowed:
            raise CheckpointError(f"{path}: {name} is {arrays[name].dtype}, not {allowed[0]}")
    found = arrays["domain"].tobytes().decode(errors="replace")
    if found != domain.name:
        raise CheckpointError(f"{path}: places of {found[:60]!r}, not {domain.name}")
    features = GoalFeatures(domain)
    width = features(np.zeros((1, domain.observation_dim), np.float32)).shape[-1]
    _check(path, arrays, width, domain.observation_dim)
    labels = np.repeat(arrays["places"].astype(np.int64), arrays["stays"])
    ends = np.cumsum(arrays["lengths"].astype(np.int64)) - 1
    return Places(arrays["centres"], labels, ends, arrays["examples"], features)


def _check(path: Path, arrays: dict[str, np.ndarray], width: int, state: int) -> None:
    """Refuse arrays that do not fit each other, or a domain's features and states."""
    centres, examples, runs = arrays["centres"], arrays["examples"], arrays["places"]
    number = len(centres) if centres.ndim else 0
    rows = int(arrays["stays"].sum(dtype=np.int64))
    lengths = arrays["lengths"]
    wrong = {
        "centres": centres.shape != (number, width) or not number,
        "examples": examples.ndim != 3
        or examples.shape[::2] != (number, state)
        or not examples.size,
        "places": runs.ndim != 1 or not runs.size or int(runs.max(initial=0)) >= number,
        "stays": arrays["stays"].shape != runs.shape or not arrays["stays"].all(),
        "lengths": lengths.ndim != 1
        or (lengths < 1).any()
        or int(lengths.sum(dtype=np.int64)) != rows,
    }
    for name, bad in wrong.items():
        if bad:
            raise CheckpointError(
                f"{path}: {name} of shape {arrays[name].shape} does not fit {number} places of "
                f"{width} numbers, {rows} rows of {state}"
            )
    for name in ("centres", "examples"):
        if not np.isfinite(arrays[name]).all():
            raise CheckpointError(f"{path}: {name} holds values that are not finite")


def main(source: str, target: str) -> None:
    """Write the places of a data set of a maze to a file."""
    found = data.load(source)
    domain = None if found.domain is None else domains.get(found.domain)
    if not isinstance(domain, MazeDomain):
        raise ConfigError(f"{source}: places are made of the data of a maze, not {found.domain}")
    places = find_places(found.observations, found.ends, GoalFeatures(domain))
    size = write_places(Path(target), places, domain)
    print(f"{target}: {len(places.centres)} places of {len(places.labels):,} rows, {size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m jumpyworld.viewer.known DATA FILE")
    try:
        main(*sys.argv[1:])
    except JumpyError as problem:
        sys.exit(f"error: {problem}")
