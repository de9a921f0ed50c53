"""Promises of the repository as a whole, checked on its text."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))

FORBIDDEN = {
    "pickle", "cPickle", "dill", "joblib", "cloudpickle", "shelve", "marshal",
}  # fmt: skip
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
# The rooms, from left to right: an import only ever points left, or down to the ground floor.
ROOMS = [
    "domains", "data", "training", "policies", "ghm", "planning", "evaluation", "experiments",
]  # fmt: skip
GROUND = {"flows", "nn", "storage", "machine", "errors", "_version"}
DOORS = {"cli", "viewer"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS], ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_can_run_code_from_a_file(path):
    modules = {name.split(".")[0] for name in imports(path)}
    assert not modules & FORBIDDEN
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            plain = isinstance(node.func, ast.Name)
            owner = getattr(getattr(node.func, "value", None), "id", "")
            assert (owner, name) not in {("torch", "load"), ("yaml", "load")}, node.lineno
            assert name not in {"extractall", "unpack_archive"}, f"line {node.lineno}: {name}()"
            assert not (plain and name in FORBIDDEN_CALLS), f"line {node.lineno}: {name}()"
            keywords = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            assert keywords.get("allow_pickle") is not True, f"line {node.lineno}"
            assert keywords.get("shell") is not True, f"line {node.lineno}"
            if (owner, name) == ("np", "load"):
                assert keywords.get("allow_pickle") is False, f"line {node.lineno}: say so"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_imports_point_left_or_down(path):
    room = path.relative_to(ROOT / "src/jumpyworld").parts[0].removesuffix(".py")
    if room in DOORS or room not in {*ROOMS, *GROUND}:
        return
    allowed = set(GROUND) | set(ROOMS[: ROOMS.index(room) + 1] if room in ROOMS else {room})
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "jumpyworld" and len(parts) > 1:
            known = {*ROOMS, *GROUND, *DOORS}
            assert parts[1] not in known or parts[1] in allowed, f"{room} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_the_library_neither_prints_nor_reads_the_environment(path):
    if path.relative_to(ROOT / "src/jumpyworld").parts[0] in DOORS:
        return
    text = path.read_text()
    calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    assert not [c.lineno for c in calls if getattr(c.func, "id", "") == "print"]
    assert "os.environ" not in text and "getenv" not in text


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_a_file_fits_in_the_head(path):
    assert len(path.read_text().splitlines()) <= 400


def test_no_machine_paths_and_no_large_files():
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    tracked = [ROOT / name for name in listing.split("\0") if name]
    weights = [p for p in tracked if p.suffix == ".safetensors"]
    assert sum(p.stat().st_size for p in weights) < 4_000_000
    assert not [p for p in tracked if p.suffix in {".npz", ".hdf5", ".pkl"}]
    absolute = re.compile(r"(?<![\w.-])/(?:work|root|home|farm)/[A-Za-z]")
    for path in tracked:
        if path.suffix in {".py", ".md", ".toml", ".json", ".jsonl", ".sh", ".yml", ".yaml"}:
            assert not absolute.search(path.read_text()), path


def test_no_two_helpers_of_the_tests_share_a_name():
    """Each room of the tests puts itself on the path: one helper would hide the other."""
    names = [
        path.stem
        for path in (ROOT / "tests").rglob("*.py")
        if not path.stem.startswith("test_") and path.stem != "conftest"
    ]
    assert sorted(names) == sorted(set(names))


def test_the_readme_shows_both_commands():
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme and "make test" in readme
    assert "make test" in (ROOT / ".ci/run").read_text()


PACKAGE = ROOT / "src" / "jumpyworld"


@pytest.mark.parametrize("room", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
def test_the_map_of_the_rooms_has_every_file_and_no_other(room):
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split(f"\n## {room}: ", 1)[1].split("\n## ", 1)[0]
    files = {path.name for path in (PACKAGE / room).rglob("[!_]*.py")}
    # Files of other rooms are named with their folder.
    assert files == set(re.findall(r"`(?:generate/)?([a-z0-9_]+\.py)`", section))


def test_the_map_names_what_stands_in_no_room():
    section = (ROOT / "docs" / "architecture.md").read_text().split(" no room of their own\n", 1)[1]
    files = {path.name for path in PACKAGE.glob("[!_]*.py")}
    assert files == set(re.findall(r"`([a-z0-9_]+\.py)`", section.split("\n## ", 1)[0]))
