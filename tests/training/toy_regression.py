"""A small algorithm for the tests of the loop: regression with Adam and a moving average.

As a script it trains in a process of its own, which the tests can kill:
``toy_regression.py RUN JSON`` where JSON holds fields of ``Toy`` and of ``TrainingConfig``.
"""

import dataclasses
import functools
import json
import os
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from jumpyworld.training import TrainingConfig, TrainingJob, train


@dataclasses.dataclass(frozen=True)
class Toy:
    width: int = 32
    learning_rate: float = 1e-3
    gamma_max: float = 0.99
    batch: int = 16
    bad_from: int = -1  # steps in [bad_from, bad_until) have a NaN in the batch
    bad_until: int = -1
    bad_params_at: int = -1  # the update that spoils the weights and not the loss


class State(eqx.Module):
    step: jax.Array
    model: eqx.nn.MLP
    target: eqx.nn.MLP
    opt_state: optax.OptState
    key: jax.Array
    half: jax.Array


def _optimiser(config):
    return optax.adam(config.learning_rate)


def init(key, config):
    model = eqx.nn.MLP(4, 2, config.width, 1, key=key)
    opt_state = _optimiser(config).init(eqx.filter(model, eqx.is_array))
    return State(jnp.int32(0), model, model, opt_state, key, jnp.zeros(3, jnp.bfloat16))


def step(state, data, key, config):
    rows = jax.random.randint(key, (config.batch,), 0, data["x"].shape[0])
    count = state.opt_state[0].count
    # Told by its key, a bad step is left behind once skipped; told by the optimiser's count, which
    # a skipped step does not raise, it comes again and again.
    bad = (data["bad_keys"] == jax.random.key_data(key)[1]).any()
    x = jnp.where(bad, jnp.nan, data["x"][rows])

    def loss_fn(model):
        return jnp.mean((jax.vmap(model)(x) - data["y"][rows]) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_fn)(state.model)
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer power
        updates, opt_state = _optimiser(config).update(grads, state.opt_state)
    model = eqx.apply_updates(state.model, updates)
    spoil = jnp.where(count == data["bad_count"], jnp.nan, 0.0)
    model = eqx.tree_at(lambda m: m.layers[0].bias, model, model.layers[0].bias + spoil)
    target = jax.tree.map(
        lambda a, b: 0.99 * a + 0.01 * b if eqx.is_array(a) else a, state.target, model
    )
    new = State(
        state.step + 1, model, target, opt_state, jax.random.split(state.key)[0], state.half
    )
    return new, {"loss": loss, "toy/count": count, "toy/nothing": jnp.float32(jnp.nan)}


def make_data(seed=0, rows=256):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 4), np.float32)
    return {"x": x, "y": np.sin(x[:, :2])}


def make_job(config, data=None, *, seed=0, dataset="data-0", policy=None):
    data = make_data() if data is None else data
    bad = [
        jax.random.key_data(jax.random.fold_in(jax.random.key(seed), k))[1]
        for k in range(config.bad_from, config.bad_until)
    ]
    # Data and not settings of the step, so that all jobs of the tests share one compiled program.
    keys = np.zeros(32, np.uint32)
    keys[: len(bad)] = bad
    data = {**data, "bad_keys": keys, "bad_count": np.int32(config.bad_params_at)}
    return TrainingJob(
        kind="toy",
        config=config,
        init=functools.partial(init, config=config),
        step=functools.partial(step, config=config),
        inference_model=lambda state: state.target,
        data=data,
        spec={"inputs": 4},
        fingerprints={"dataset": dataset, "policy": policy},
    )


def main(run, settings):
    toy_fields = {field.name for field in dataclasses.fields(Toy)}
    toy = Toy(**{k: v for k, v in settings.items() if k in toy_fields})
    config = TrainingConfig(**{k: v for k, v in settings.items() if k not in toy_fields})
    result = train(
        make_job(toy, seed=config.seed),
        run,
        config,
        # Tells the parent that training is under way, and where.
        progress=lambda done, total: os.write(1, f"{done}\n".encode()),
        warn=lambda line: os.write(2, f"{line}\n".encode()),
    )
    os.write(1, f"{result.status}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
