"""What an algorithm hands to the training loop, and what it gets back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jaxtyping import PRNGKeyArray, PyTree

from jumpyworld.errors import JumpyError

Status = Literal["finished", "paused", "interrupted"]


class DivergedError(JumpyError):
    """The loss or the weights stopped being finite; the last checkpoint is from before that."""


@dataclass(frozen=True)
class TrainingJob:
    """One thing to train: pure functions, the data they read, and what describes them.

    The state is a pytree with every number that training needs; its array leaves are stored and
    all others must stay as ``init`` made them.
    """

    kind: str
    """Which loader reads the checkpoint back (``jumpyworld.loading``)."""
    config: Any
    """The algorithm's frozen dataclass of plain values; a resumed run must have the same."""
    init: Callable[[PRNGKeyArray], PyTree]
    """``init(key) -> state``."""
    step: Callable[[PyTree, PyTree, PRNGKeyArray], tuple[PyTree, Mapping[str, Any]]]
    """``step(state, data, key) -> (state, metrics)``: one update; draws its batch from ``data``.
    Metrics are scalars; a step is undone if one whose name ends in ``loss`` is not finite."""
    inference_model: Callable[[PyTree], PyTree]
    """``inference_model(state) -> model``: what inference needs of the state."""
    data: PyTree
    """What ``step`` reads: the data set, a frozen policy; put on the device once. Arrays that come
    in here, and not with a closure, are not compiled into the program."""
    probe: Callable[[PyTree, PyTree, PRNGKeyArray], Mapping[str, Any]] | None = None
    """``probe(state, data, key) -> metrics``: further scalars for each row of the log, of the state
    as it is then. It changes nothing, and costs nothing between rows."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Shapes and whatever else the loader needs to build the model; plain values."""
    fingerprints: Mapping[str, str | None] = field(default_factory=dict)
    """Hashes and names of what it is trained on (``dataset``, ``domain``, ``policy``,
    ``policy_name``), the same for a resumed run."""


@dataclass(frozen=True)
class Result:
    """How a call of ``train`` ended."""

    status: Status
    """All steps done; out of time; or stopped by a signal. The same call continues the last two."""
    step: int
    """Steps done in all."""
    run: Path
    """The run folder."""
    checkpoint: Path | None
    """The newest checkpoint; None if a signal came before the first step."""
    seconds: float
    """Wall-clock time of this call."""
