"""What decides the content of a data set."""

from dataclasses import dataclass
from pathlib import Path

from jumpyworld.domains.base import Domain
from jumpyworld.domains.registry import get
from jumpyworld.domains.versions import simulator_versions
from jumpyworld.errors import ConfigError
from jumpyworld.storage.files import sha256_file


@dataclass(frozen=True)
class Request:
    """What decides the content of a data set; equal requests give equal files.

    Attributes:
        domain: OGBench's data set name.
        seed: any non-negative integer.
        episodes: training episodes; a tenth as many further ones are made for validation, and at
            least one, because OGBench's loader cannot read an empty set.
        steps: rows per episode.
        noise: see ``Collection``.
        versions: of the packages that the physics and the draws depend on.
    """

    domain: str
    seed: int
    episodes: int
    steps: int
    noise: float
    versions: dict[str, str]

    @classmethod
    def make(
        cls,
        domain: Domain,
        seed: int = 0,
        episodes: int | None = None,
        expert: Path | None = None,
    ) -> "Request":
        """Return the standard request for a domain, with OGBench's sizes as defaults.

        Args:
            domain: what to make data of.
            seed: fixes the data.
            episodes: training episodes; OGBench's number by default.
            expert: weights of the ant's controller; the packaged ones by default.
        """
        standard = domain.collection
        episodes = standard.episodes if episodes is None else episodes
        if episodes < 1:
            raise ConfigError(f"episodes must be at least 1, not {episodes}")
        if seed < 0:
            raise ConfigError(f"seed must not be negative, not {seed}")
        versions = simulator_versions()
        if domain.name.startswith("antmaze"):
            from jumpyworld.domains.generate.ant_expert import DEFAULT_PATH, AntExpert

            AntExpert.load(expert)  # an error here rather than in every worker
            versions["ant-expert"] = sha256_file(expert or DEFAULT_PATH)[:16]
        elif expert is not None:
            raise ConfigError(f"expert={expert}: {domain.alias} has no ant to control")
        return cls(domain.name, seed, episodes, standard.steps, standard.noise, versions)

    @property
    def num_bytes(self) -> int:
        """Size of the finished files together."""
        episodes = self.episodes + max(1, self.episodes // 10)
        return episodes * self.steps * get(self.domain).row_bytes

    def jobs(self) -> list[tuple[str, int]]:
        """Return every episode as (split, index), in the order of the files."""
        counts = {"train": self.episodes, "val": max(1, self.episodes // 10)}
        return [(split, index) for split, count in counts.items() for index in range(count)]
