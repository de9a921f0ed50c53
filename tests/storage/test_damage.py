"""Damaged checkpoints: one typed error, or the very same arrays; never wrong numbers."""

import json
import random

import pytest
from checkpoint_samples import make_arrays, save_step

from jumpyworld.errors import CheckpointError
from jumpyworld.storage import checkpoint, manifest
from jumpyworld.storage.tensors import digest


def mutate(content: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    kind = rng.randrange(6)
    where = rng.randrange(len(content)) if content else 0
    if kind == 0:  # one bit
        return (
            content[:where] + bytes([content[where] ^ 1 << rng.randrange(8)]) + content[where + 1 :]
        )
    if kind == 1:
        return content[:where]
    if kind == 2:  # a run of noise
        noise = rng.randbytes(rng.randint(1, 64))
        return content[:where] + noise + content[where + len(noise) :]
    if kind == 3:
        return content + rng.randbytes(rng.randint(1, 64))
    if kind == 4:  # a piece doubled, which in JSON can double a key
        end = rng.randrange(where, len(content)) if content else 0
        return content[:end] + content[where:end] + content[end:]
    return rng.choice(others)


def attempt(folder):
    """Return digests of all that can be read, or None where that is refused."""
    try:
        found, document, state = checkpoint.read_state(folder)
        _, model = checkpoint.read(folder)
    except CheckpointError as error:
        assert str(folder) in str(error) and "\n" not in str(error)
        return None
    return found.step, json.dumps(document, sort_keys=True), digest(state), digest(model)


def run_mutations(folder, count, seed):
    rng, paths = random.Random(seed), sorted(folder.iterdir())
    originals = {path: path.read_bytes() for path in paths}
    whole, refused = attempt(folder), 0
    for _ in range(count):
        path = rng.choice(paths)
        path.write_bytes(mutate(originals[path], rng, list(originals.values())))
        found = attempt(folder)
        assert found in (None, whole)
        refused += found is None
        path.write_bytes(originals[path])
    return refused


def test_3000_mutations(folder):
    # White space at the end of the manifest is the only damage that does not matter.
    assert run_mutations(folder, 3_000, seed=0) > 2_700


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_100000_mutations(folder, seed):
    assert run_mutations(folder, 10_000, seed) > 9_000


def mutate_value(value, rng):
    """Change one value somewhere in JSON data to something of any type."""
    strange = [None, True, -1, 0, 2**70, 1e308, "", "../x", "\u202e\x00", [], {}, [[]], "float64"]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != name}
        return {**value, name: mutate_value(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        index = rng.randrange(len(value))
        return [*value[:index], mutate_value(value[index], rng), *value[index + 1 :]]
    return rng.choice(strange)


def test_a_hostile_manifest_with_a_right_hash_is_refused_or_harmless(folder):
    rng, path = random.Random(0), folder / "manifest.json"
    body = json.loads(path.read_text())
    del body["sha256"]
    for _ in range(1_000):
        changed = mutate_value(body, rng)
        if isinstance(changed, dict):
            changed = {**changed, "sha256": manifest.sha256_json(changed)}
        path.write_text(json.dumps(changed))
        found = attempt(folder)
        assert found is None or found[2] == digest(make_arrays(1)) or "float64" in str(changed)


def test_each_damaged_file_is_named(folder):
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for damaged in (content[:-3], content[:-2] + bytes([content[-2] ^ 1]) + content[-1:], b""):
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match=path.name):
                checkpoint.verify(folder)
        path.unlink()
        with pytest.raises(CheckpointError, match=path.name):
            checkpoint.verify(folder)
        path.write_bytes(content)
    checkpoint.verify(folder)


def test_files_of_another_checkpoint_do_not_fit(folder):
    other = save_step(folder.parents[1], 2)
    for name in ("manifest.json", "train_state.safetensors", "model.safetensors"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes((other / name).read_bytes())
        with pytest.raises(CheckpointError):
            checkpoint.verify(folder)
        (folder / name).write_bytes(content)
