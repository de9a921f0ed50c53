"""What the reference of a planning benchmark found, kept state by state.

Judging every candidate with many chains costs far more than all that is compared with it. So each
state's candidates and their values are written as soon as they are there: the same benchmark again,
after an interruption or with another method, judges only the states that are missing. Candidates
are stored and not drawn anew, since another device would round them otherwise.

Shapes: M candidates, K segments, da action, dz policy-encoding dimensions.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jumpyworld.errors import DataError, unwritable
from jumpyworld.storage import npz
from jumpyworld.storage.manifest import sha256_json
from jumpyworld.storage.runs import Warn, python_warning


@dataclass(frozen=True, eq=False)
class Judged:
    """One state's candidates and what they are worth.

    Attributes:
        z: sequences [M, K, dz].
        actions: first actions [M, da].
        values: by the reference [M]; NaN where something went wrong.
    """

    z: Float[np.ndarray, "M K dz"]
    actions: Float[np.ndarray, "M da"]
    values: Float[np.ndarray, " M"]


class References:
    """Judged states in a folder named after everything that decides them."""

    def __init__(self, folder: Path, identity: dict[str, Any], warn: Warn = python_warning):
        """Remember where they go; nothing is read or written yet.

        Args:
            folder: home of all references; this one gets a folder in it.
            identity: plain values that decide candidates and values.
            warn: called with one line for each damaged file, which is made again.
        """
        self.folder = Path(folder) / sha256_json(identity)[:16]
        self._warn = warn

    def read(self, state: int) -> Judged | None:
        """Return what was found for a state, or None if it has to be judged."""
        path = self._path(state)
        if not path.exists():
            return None
        try:
            arrays = npz.read_npz(path)
            judged = Judged(arrays["z"], arrays["actions"], arrays["values"])
            if not len(judged.z) == len(judged.actions) == len(judged.values) > 0:
                raise DataError(f"{path}: its arrays do not fit together")
        except (DataError, KeyError, TypeError) as error:
            self._warn(f"{path}: damaged ({error}); judging again")
            return None
        return judged

    def write(self, state: int, judged: Judged) -> None:
        """Keep what was found for a state, whole or not at all."""
        columns = {
            name: npz.Column(array.shape, np.dtype("<f4"), lambda array=array: [array])
            for name, array in vars(judged).items()
        }
        path = self._path(state)
        try:
            npz.write_npz(path, columns)
        except OSError as error:
            raise unwritable(path, error) from error

    def _path(self, state: int) -> Path:
        return self.folder / f"state-{state:04d}.npz"
