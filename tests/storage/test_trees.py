import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jumpyworld.errors import CheckpointError
from jumpyworld.storage.tensors import digest
from jumpyworld.storage.trees import from_arrays, pick, to_arrays


def make(width=3, seed=0):
    model = eqx.nn.MLP(2, 1, width, 1, key=jax.random.key(seed))
    return {
        "model": model,
        "opt": optax.adam(1e-3).init(eqx.filter(model, eqx.is_array)),
        "key": jax.random.key(seed + 1),
        "keys": jax.random.split(jax.random.key(seed, impl="rbg"), 2),
        "step": jnp.int32(seed),
        "half": jnp.arange(4, dtype=jnp.bfloat16) + seed,
        "flag": jnp.array(True),
        "host": np.arange(3, dtype=np.int8),
        "empty": jnp.zeros((0, 2)),
        "nothing": None,
        "name": "text",
        "number": 1.5,
    }


def test_every_array_has_the_name_of_its_path():
    names = to_arrays(make()).keys()
    assert {"model/layers/0/weight", "opt/0/mu/layers/1/bias", "step", "host"} <= names
    assert {"key|key:threefry2x32", "keys|key:rbg"} <= names
    assert not {"name", "number", "nothing", "model/activation"} & names
    assert list(to_arrays(make())) == list(to_arrays(make()))


def test_a_tree_comes_back_bit_for_bit():
    tree, other = make(seed=1), make(seed=2)
    back = from_arrays(other, to_arrays(tree))
    assert digest(to_arrays(back)) == digest(to_arrays(tree)) != digest(to_arrays(other))
    assert jax.tree.structure(back) == jax.tree.structure(other)
    assert jax.random.key_impl(back["keys"]) == "rbg"
    assert back["half"].dtype == jnp.bfloat16


def test_shapes_alone_make_a_template():
    tree = make()
    template = eqx.filter_eval_shape(lambda: make(seed=0))
    assert digest(to_arrays(from_arrays(template, to_arrays(tree)))) == digest(to_arrays(tree))


def test_a_difference_is_an_error_that_names_the_array():
    arrays = {name: np.asarray(array) for name, array in to_arrays(make()).items()}
    wrong = {
        "model/layers/0/weight is missing": {"model/layers/0/weight": None},
        "'surplus' is stored": {"surplus": np.zeros(1)},
        "step is stored with dtype float32": {"step": np.float32(0)},
        r"half is stored with shape \(5,\)": {"half": arrays["half"][[0, 0, 0, 0, 0]]},
        "key is missing": {"key|key:threefry2x32": None},
        "key is no PRNG key": {"key|key:threefry2x32": np.zeros(7, np.uint32)},
    }
    for message, change in wrong.items():
        damaged = {k: v for k, v in {**arrays, **change}.items() if v is not None}
        with pytest.raises(CheckpointError, match=message):
            from_arrays(make(), damaged, "here")
    other_kind = {**arrays, "key|key:rbg": np.zeros(4, np.uint32)}
    del other_kind["key|key:threefry2x32"]
    with pytest.raises(CheckpointError, match="key is stored with dtype"):
        from_arrays(make(), other_kind)
    with pytest.raises(CheckpointError, match=r"layers/0/weight is stored with shape \(3, 2\)"):
        from_arrays(make(width=4), arrays)


def test_two_leaves_of_one_name_are_refused():
    with pytest.raises(CheckpointError, match="a/b"):
        to_arrays({"a/b": jnp.zeros(1), "a": {"b": jnp.ones(1)}})


def test_pick_takes_one_of_a_batch():
    arrays = {"w": np.arange(6).reshape(3, 2)}
    assert pick(arrays, 1)["w"].tolist() == [2, 3]
