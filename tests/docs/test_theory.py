"""The table of the theory page: every function and every test that it names is there."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (.+?) \| .+? \| `([\w.]+)` \| `(tests/[\w/]+\.py)::(\w+)` \|$",
    (ROOT / "docs/theory.md").read_text(),
    re.MULTILINE,
)


def find(name):
    """Return what a dotted name below ``jumpyworld`` stands for."""
    parts = ["jumpyworld", *name.split(".")]
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def test_every_row_of_the_tables_is_read():
    lines = (ROOT / "docs/theory.md").read_text().splitlines()
    tables = [line for line in lines if line.startswith("| ") and not line.startswith("| paper")]
    assert len(tables) == len(ROWS) > 35


@pytest.mark.parametrize(("paper", "function"), [row[:2] for row in ROWS])
def test_the_function_exists_and_is_explained(paper, function):
    assert (find(function).__doc__ or "").strip()


@pytest.mark.parametrize(("path", "test"), sorted({row[2:] for row in ROWS}))
def test_the_test_exists(path, test):
    tree = ast.parse((ROOT / path).read_text())
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    "label", ["td-hc", "td-flow", "hc-bellman", "ghm-tar", "q-ghm", "gsp-weights", "gsp sm",
              "gsp q-function", "mix_vf", "mix-vf-minimization", "planning", "td-flow-hc",
              "compplan", "goal-cond-proposal", "uncond-proposal", "plan_z", "flow-q-learning"],
)  # fmt: skip
def test_nothing_of_the_paper_is_left_out(label):
    assert any(re.search(rf"(^| ){re.escape(label)}(,|$| )", row[0]) for row in ROWS), label
