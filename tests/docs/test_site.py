"""The pages build without a warning, and a browser that reads them asks nobody else."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself; links are followed by people only.
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Fetched(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag in FETCHED and attrs.get("rel") != "canonical":
            self.found.append(attrs.get(FETCHED[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", out]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_every_page_is_built(site):
    pages = [
        p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")
    ]
    assert len(pages) > 20
    assert not [page for page in pages if not (site / page).is_file()]


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        parser = Fetched()
        parser.feed(page.read_text())
        assert parser.found
        assert not [url for url in parser.found if re.match(r"(https?:)?//", url)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text()), sheet


def test_the_reference_holds_the_public_names(site):
    text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    for name in (
        "loading.load", "domains.registry.get", "data.load", "data.dataset.Dataset.from_arrays",
        "policies.base.AbstractPolicy.sample", "policies.outside.from_callable",
        "ghm.model.GeometricHorizonModel.sample", "ghm.losses.mixture_weights",
        "planning.gsp.gsp_weights", "planning.compplan.CompPlan", "planning.plan.Plan",
        "evaluation.success.evaluate", "training.loop.train",
    ):  # fmt: skip
        assert f'id="jumpyworld.{name}"' in text, name
