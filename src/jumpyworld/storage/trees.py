"""Flat named arrays from pytrees, and back.

Every array leaf gets the name of its path (``model/layers/0/weight``), so that a checkpoint can be
read by people and by other tools. Leaves that are no arrays (activation functions, Python numbers)
are not stored: whoever loads builds a template from the configuration, and the template has them.

A typed PRNG key is stored as its raw words under ``<path>|key:<implementation>``, so that loading
it as another kind of key is a name that does not match and not a silent reinterpretation.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jumpyworld.errors import CheckpointError
from jumpyworld.storage.schema import brief

_KEY_MARK = "|key:"


def is_array(leaf: Any) -> bool:
    """Whether a leaf is stored: a JAX or NumPy array, or the shape and dtype of one."""
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def to_arrays(tree: PyTree) -> dict[str, Any]:
    """Return the array leaves of ``tree`` by path; the arrays are not copied.

    Raises:
        CheckpointError: if two leaves have the same path name.
    """
    arrays = {}
    for name, leaf in _named_leaves(tree):
        if _is_key(leaf):
            name, leaf = f"{name}{_KEY_MARK}{jax.random.key_impl(leaf)}", jax.random.key_data(leaf)
        if name in arrays:
            raise CheckpointError(f"two leaves are called {name}: rename one of the dict keys")
        arrays[name] = leaf
    return arrays


def from_arrays(template: PyTree, arrays: Mapping[str, Any], where: str = "checkpoint") -> PyTree:
    """Return ``template`` with its array leaves replaced by ``arrays``, all of them and no others.

    Args:
        template: the pytree to fill; its array leaves may be ``jax.ShapeDtypeStruct`` (see
            ``equinox.filter_eval_shape``), so that no memory is spent on values to be thrown away.
        arrays: what ``to_arrays`` of an equal tree returned.
        where: file or folder named in errors.

    Raises:
        CheckpointError: a name is missing or extra, or a shape or dtype differs. Nothing is cast.
    """
    leaves, structure = jax.tree.flatten(template)
    names = iter(_named_leaves(template))
    unused = dict(arrays)
    filled = []
    for leaf in leaves:
        if not is_array(leaf):
            filled.append(leaf)
            continue
        name, _ = next(names)
        filled.append(_take(unused, name, leaf, where))
    if unused:
        raise CheckpointError(
            f"{where}: {_some(unused)} is stored but this model has no such array"
        )
    return jax.tree.unflatten(structure, filled)


def pick(arrays: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return one member of arrays stacked along a leading axis (one seed of several)."""
    return {name: array[index] for name, array in arrays.items()}


def _take(unused: dict[str, Any], name: str, leaf: Any, where: str) -> jax.Array:
    if _is_key(leaf):
        found = [stored for stored in unused if stored.startswith(name + _KEY_MARK)]
        if len(found) != 1:
            raise CheckpointError(f"{where}: the PRNG key {name} is missing")
        words = unused.pop(found[0])
        try:
            key = jax.random.wrap_key_data(words, impl=found[0].removeprefix(name + _KEY_MARK))
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{where}: {name} is no PRNG key ({error})") from error
        _same(name, key, leaf, where)
        return key
    if name not in unused:
        raise CheckpointError(f"{where}: {name} is missing (stored: {_some(unused)})")
    _same(name, unused[name], leaf, where)
    return jnp.array(unused.pop(name))


def _same(name: str, stored: Any, wanted: Any, where: str) -> None:
    for field in ("shape", "dtype"):
        have, want = getattr(stored, field), getattr(wanted, field)
        if have != want:
            raise CheckpointError(
                f"{where}: {name} is stored with {field} {have} and this model wants {want}"
            )


def _named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in leaves
        if is_array(leaf)
    ]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _some(names: Mapping[str, Any]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(brief(name) for name in listed[:3]) + more if listed else "nothing"
