import json
import subprocess
import sys

import numpy as np
import pytest
import tyro

from jumpyworld import domains
from jumpyworld.cli.data_inspect import Convert, Inspect, List
from jumpyworld.data import Dataset, load, ogbench
from jumpyworld.data.convert import convert
from jumpyworld.errors import DataError, MissingExtraError

pytest.importorskip("matplotlib")


def make(d=2, da=2, domain=None):
    """Build four trajectories of five transitions about the origin."""
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(24, d)), rng.uniform(-1, 1, (24, da))
    return Dataset.from_arrays(states, actions, np.arange(24) % 6 == 5, domain=domain)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "pointmaze-medium-navigate-v0.npz"
    ogbench.write_npz(path, make())
    return path


def test_list_names_all_ten_with_their_sizes(capsys):
    List().run()
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if "-v0" in line}
    assert list(rows) == [domain.alias for domain in domains.DOMAINS]
    assert rows["cube-4"] == [
        "cube-4", "cube-quadruple-play-v0", "55", "5", "1000", "5000", "x", "1001", "2808",
        str(round(5500 * 1001 / domains.get("cube-4").collection.rate / 60)),
    ]  # fmt: skip
    assert rows["pointmaze-medium"][-2:] == ["33", "2"]


@pytest.mark.parametrize(
    ("name", "size"),
    [("pointmaze-giant", 33), ("antmaze-large", 265)]
    + [(f"cube-{i}", n) for i, n in enumerate((297, 385, 473, 561), start=1)],
)
def test_bytes_per_row_are_those_measured(name, size):
    assert domains.get(name).row_bytes == size


def test_inspect_prints_a_table_and_draws_beside_the_data(path, capsys):
    Inspect(path).run()
    out = capsys.readouterr().out
    picture = path.with_suffix(".png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    for text in (
        "pointmaze-medium-navigate-v0",
        "cells visited",
        "of 26 free",
        "m/s",
        str(picture),
    ):
        assert text in out
    assert "actions 1" in out


@pytest.mark.parametrize("name", ["antmaze-medium", "cube-2"])
def test_inspect_says_what_the_domain_calls_for(name, tmp_path, capsys):
    known = domains.get(name)
    target = tmp_path / f"{known.name}.npz"
    ogbench.write_npz(target, make(known.observation_dim, known.action_dim))
    Inspect(target).run()
    out = capsys.readouterr().out
    expected = ("upside down",) if name.startswith("ant") else ("lifts", "stacked", "60 bins")
    assert all(text in out for text in expected)


def test_inspect_prints_json_and_takes_another_picture_path(path, tmp_path, capsys):
    picture = tmp_path / "new" / "a.png"
    Inspect(path, out=picture, json=True).run()
    found = json.loads(capsys.readouterr().out)
    assert found["transitions"] == 20
    assert found["maze"]["cells_free"] == 26
    assert found["picture"] == str(picture)
    assert picture.exists() and not path.with_suffix(".png").exists()


def test_inspect_reads_the_validation_set_of_a_folder(path, tmp_path, capsys):
    converted = convert(path, tmp_path / "out")
    Inspect(converted.parent, split="val", json=True).run()
    assert json.loads(capsys.readouterr().out)["trajectories"] == 1
    assert converted.with_name(f"{converted.stem}-val.png").exists()


def test_inspect_takes_names_that_look_like_markup(tmp_path, capsys):
    target = tmp_path / "a[b]:smile:[" / "x.npz"
    target.parent.mkdir()
    ogbench.write_npz(target, make())
    Inspect(target).run()
    assert "a[b]:smile:[" in capsys.readouterr().out.splitlines()[0].replace("\n", "")


def test_inspect_without_matplotlib_still_gives_the_numbers(path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    Inspect(path, json=True).run()
    shown = capsys.readouterr()
    assert json.loads(shown.out)["picture"] is None
    assert "jumpyworld[plots]" in shown.err
    with pytest.raises(MissingExtraError):
        Inspect(path, out=path.with_name("a.png")).run()


def test_inspect_names_what_is_wrong_and_lets_it_pass_on_demand(tmp_path, capsys):
    data = make(4, 3)
    actions = data.actions * 5
    target = tmp_path / "a.npz"
    np.savez(target, observations=data.observations, actions=actions, terminals=data.terminals)
    with pytest.raises(DataError, match="actions-out-of-range"):
        Inspect(target).run()
    Inspect(target, allow=("actions-out-of-range",)).run()
    assert "not known" in capsys.readouterr().out


def test_convert_writes_the_files(path, tmp_path, capsys):
    out = tmp_path / "out"
    args = [str(path), str(out), "--name", "mine", "--domain", "pointmaze-medium", "--overwrite"]
    tyro.cli(Convert, args=args).run()
    assert "mine.npz: complete" in capsys.readouterr().out
    assert load(out / "mine.npz").num_trajectories == 3
    assert load(out / "mine.npz", split="val").domain == "pointmaze-medium-navigate-v0"


def test_arguments_are_parsed():
    command = tyro.cli(Inspect, args=["x.npz", "--split", "val", "--json", "--out", "y.png"])
    assert (str(command.path), command.split, str(command.out)) == ("x.npz", "val", "y.png")
    assert command.json is True
    assert tyro.cli(List, args=[]) == List()


def test_importing_the_verbs_imports_nothing_heavy():
    code = (
        "import sys, jumpyworld.cli.data_inspect\n"
        "print([m for m in ('numpy', 'jax', 'matplotlib', 'mujoco') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
