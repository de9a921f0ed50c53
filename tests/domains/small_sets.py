"""Data sets of a few short episodes, and what is in their files."""

from dataclasses import replace

from jumpyworld import domains
from jumpyworld.domains.generate.runner import Request
from jumpyworld.storage.files import sha256_file


def small(alias, *, episodes=3, steps=40, seed=0):
    return replace(Request.make(domains.get(alias), seed, episodes), steps=steps)


def digests(folder):
    return {path.name: sha256_file(path) for path in sorted(folder.iterdir())}
