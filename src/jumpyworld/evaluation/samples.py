"""Samples on disk: what was compared, kept so that pictures and further measures need no rerun.

One npz per source (the truth, or one model): ``samples`` float32 [G, P, n, d], ``states`` and
``goals`` [P, d], ``gammas`` [G], and ``info``, the UTF-8 bytes of a JSON object that says whose
they are.

Shapes: G discounts, P pairs, n samples, d state dimensions.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from jumpyworld.errors import DataError, data_error, unwritable
from jumpyworld.storage import npz

TRUTH = "truth"


@dataclass(frozen=True, eq=False)
class Samples:
    """Futures of one source for all pairs and discounts.

    Attributes:
        label: ``truth``, or what a model is called in tables and pictures.
        domain: name of the domain that the states belong to.
        gammas: discounts, G of them.
        states: where the futures begin, raw units [P, d].
        goals: where the policy was sent [P, d].
        samples: the futures, raw units [G, P, n, d].
    """

    label: str
    domain: str
    gammas: tuple[float, ...]
    states: Float[np.ndarray, "P d"]
    goals: Float[np.ndarray, "P d"]
    samples: Float[np.ndarray, "G P n d"]

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        info = json.dumps({"label": self.label, "domain": self.domain}).encode()
        arrays = {
            "samples": np.asarray(self.samples, "<f4"),
            "states": np.asarray(self.states, "<f4"),
            "goals": np.asarray(self.goals, "<f4"),
            "gammas": np.asarray(self.gammas, "<f8"),
            "info": np.frombuffer(info, np.uint8),
        }
        columns = {
            name: npz.Column(array.shape, array.dtype, lambda array=array: iter([array]))
            for name, array in arrays.items()
        }
        try:
            npz.write_npz(path, columns)
        except OSError as error:
            raise unwritable(path, error) from error

    @classmethod
    def read(cls, path: Path) -> "Samples":
        """Read a file that ``write`` made; anything else is refused.

        Raises:
            DataError: the file is missing, damaged, or holds something else.
        """
        arrays = npz.read_npz(path)
        try:
            info = json.loads(bytes(arrays["info"]))
            label, domain = info["label"], info["domain"]
            samples, states, goals, gammas = (
                arrays[name] for name in ("samples", "states", "goals", "gammas")
            )
        except (KeyError, TypeError, ValueError) as error:
            raise data_error(path, "holds no samples of `jumpy fidelity`") from error
        count, d = states.shape if states.ndim == 2 else (-1, -1)
        fits = (
            samples.ndim == 4
            and samples.shape[:2] == (len(gammas), count)
            and samples.shape[3] == d
            and goals.shape == states.shape
            and isinstance(label, str)
            and isinstance(domain, str)
        )
        if not fits:
            raise data_error(path, "its arrays do not fit together")
        return cls(label, domain, tuple(gammas.tolist()), states, goals, samples)


def read_all(paths: Sequence[Path]) -> list[Samples]:
    """Read samples of the same pairs from files or folders, the truth first.

    Raises:
        DataError: there are none, or they are not of the same pairs and domain.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{', '.join(map(str, paths)) or 'no path'}: no samples (*.npz) there")
    found = [Samples.read(path) for path in files]
    for path, each in zip(files, found, strict=True):
        first = found[0]
        same = each.domain == first.domain and np.array_equal(each.states, first.states)
        if not same or not np.array_equal(each.goals, first.goals):
            raise data_error(path, f"is of other pairs than {files[0]}; draw them one by one")
    return sorted(found, key=lambda each: each.label != TRUTH)
