"""Proposals made of others: one z of each sequence, the first z alone, several together.

Shapes: M candidates, K segments, dz policy-encoding dimensions.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError, brief
from jumpyworld.planning.estimate import Question
from jumpyworld.planning.gsp import discounts_of_horizons
from jumpyworld.planning.proposals import AbstractProposal, check_proposal, draw_candidates


class OneZProposal(AbstractProposal):
    """One z for all segments of a candidate, picked at random from another proposal's sequence.

    With it a planner selects a policy (GPI) over horizons that its model was trained for.

    Attributes:
        inner: makes the sequences.
    """

    inner: AbstractProposal

    def __check_init__(self) -> None:
        check_proposal("OneZProposal: inner", self.inner)

    @property
    def count(self) -> int:
        """Number of candidates."""
        return self.inner.count

    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Draw all candidates for one state."""
        inner_key, pick_key = jax.random.split(key)
        z = draw_candidates(self.inner, inner_key, question)
        pick = jax.random.randint(pick_key, (z.shape[0], 1, 1), 0, z.shape[1])
        return jnp.broadcast_to(jnp.take_along_axis(z, pick, axis=1), z.shape)

    def jumps(self, num_segments: int) -> int:
        """Return how many samples of the model the candidates cost."""
        return self.inner.jumps(num_segments)


class FirstProposal(AbstractProposal):
    """The first z of sequences that are made for other horizons, for a planner of one segment.

    So GPI chooses among the very policies that CompPlan begins with.

    Attributes:
        inner: makes the sequences.
        betas: effective discounts that they are made for [K].
    """

    inner: AbstractProposal
    betas: Float[Array, " K"]

    def __init__(self, inner: AbstractProposal, horizons: Sequence[float]):
        """Keep the proposal, and the horizons of its sequences as discounts."""
        check_proposal("FirstProposal: inner", inner)
        self.inner, self.betas = inner, jnp.asarray(discounts_of_horizons(horizons), float)

    @property
    def count(self) -> int:
        """Number of candidates."""
        return self.inner.count

    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Draw all candidates for one state."""
        if len(question.betas) != 1:
            raise ConfigError(f"FirstProposal: one z each, for {len(question.betas)} horizons")
        whole = dataclasses.replace(question, betas=self.betas)
        return draw_candidates(self.inner, key, whole)[:, :1]

    def jumps(self, num_segments: int) -> int:
        """Return how many samples of the model the candidates cost."""
        del num_segments
        return self.inner.jumps(len(self.betas))


class MixtureProposal(AbstractProposal):
    """The candidates of several proposals together.

    Attributes:
        parts: the proposals.
    """

    parts: tuple[AbstractProposal, ...]

    def __check_init__(self) -> None:
        parts: Any = self.parts
        if not (isinstance(parts, tuple | list) and parts):
            told = f"MixtureProposal: parts={brief(parts)}"
            raise ConfigError(f"{told}: must be a tuple of proposals; () proposes nothing")
        for number, part in enumerate(self.parts):
            check_proposal(f"MixtureProposal: parts[{number}]", part)

    @property
    def count(self) -> int:
        """Candidates of all parts."""
        return sum(part.count for part in self.parts)

    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Draw all candidates for one state, part after part."""
        keys = jax.random.split(key, len(self.parts))
        drawn = [draw_candidates(p, k, question) for k, p in zip(keys, self.parts, strict=True)]
        widths = sorted({z.shape[-1] for z in drawn})
        if len(widths) > 1:
            raise ConfigError(f"MixtureProposal: z of widths {widths}; must be of one width")
        return jnp.concatenate(drawn)

    def jumps(self, num_segments: int) -> int:
        """Return how many samples of the model the candidates cost."""
        return sum(part.jumps(num_segments) for part in self.parts)
