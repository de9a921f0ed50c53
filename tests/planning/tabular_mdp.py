"""Finite MDPs whose successor measures are matrices, as exact samplers and as exact numbers.

A state is its number, as a vector of one float; so is an action, and so is z.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Tabular:
    """P [S, A, S] and policies pi [Z, S, A], float64."""

    transition: np.ndarray
    policies: np.ndarray

    @classmethod
    def random(cls, rng, states=4, actions=3, policies=3):
        def draw(*shape):
            return rng.dirichlet(np.full(shape[-1], 0.4), size=shape[:-1])

        return cls(draw(states, actions, states), draw(policies, states, actions))

    def successor_measure(self, z, beta):
        """m_beta of pi_z from every (s, a): (1 - beta) sum_t beta^t P (P_pi)^t, [S, A, S]."""
        steps = np.einsum("sa,sap->sp", self.policies[z], self.transition)
        discounted = np.linalg.inv(np.eye(len(steps)) - beta * steps)
        return (1 - beta) * self.transition @ discounted

    def chained(self, sequence, betas):
        """Law of S_k from every (s, a), for each k: [K, S, A, S]."""
        laws = [self.successor_measure(sequence[0], betas[0])]
        for z, beta in zip(sequence[1:], betas[1:], strict=True):
            onward = np.einsum("sa,sap->sp", self.policies[z], self.successor_measure(z, beta))
            laws.append(laws[-1] @ onward)
        return np.stack(laws)

    def switching_measure(self, sequence, alphas, discount):
        """Successor measure of the switching policy from the chain on (state, phase): [S, A, S].

        After each step the phase stays with probability 1 - alpha or becomes the next one; then
        the phase's policy acts. The last phase is never left.
        """
        num_states, phases = len(self.transition), len(sequence)
        size = num_states * phases
        move = np.zeros((size, size))
        # Nodes (s, k): arrived at s, having acted in phase k.
        for k in range(phases):
            leave = alphas[k] if k + 1 < phases else 0.0
            for target, chance in ((k, 1 - leave), (k + 1, leave)):
                if chance > 0:
                    step = np.einsum("sa,sap->sp", self.policies[sequence[target]], self.transition)
                    rows = slice(k * num_states, (k + 1) * num_states)
                    columns = slice(target * num_states, (target + 1) * num_states)
                    move[rows, columns] += chance * step
        visits = (1 - discount) * np.linalg.inv(np.eye(size) - discount * move)
        first = visits[:num_states].reshape(num_states, phases, num_states).sum(1)
        return self.transition @ first

    def model(self, betas):
        """The model at these discounts."""
        policies = range(len(self.policies))
        tables = [[self.successor_measure(z, beta) for z in policies] for beta in betas]
        return TabularModel(jnp.asarray(betas, float), jnp.asarray(np.asarray(tables), float))

    def policy(self):
        return TabularPolicy(jnp.asarray(self.policies, float))


class TabularPolicy(eqx.Module):
    """Draws an action's number from the rows of a table."""

    table: jax.Array

    def sample(self, key, states, z):
        rows = self.table[z[..., 0].astype(int), states[..., 0].astype(int)]
        return jax.random.categorical(key, jnp.log(rows))[..., None].astype(states.dtype)


class TabularModel(eqx.Module):
    """Draws from the successor measure exactly, at the discounts that it has tables for."""

    betas: jax.Array
    measures: jax.Array

    def sample(self, key, states, actions, z, gamma):
        nearest = jnp.argmin(jnp.abs(self.betas - gamma))
        s, a, policy = (x[..., 0].astype(int) for x in (states, actions, z))
        law = jnp.maximum(self.measures[nearest, policy, s, a], 0.0)
        return jax.random.categorical(key, jnp.log(law))[..., None].astype(states.dtype)
