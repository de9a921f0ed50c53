"""``jumpy data inspect``, ``convert`` and ``list``: look at data sets, and bring in others."""

import dataclasses
import json as json_module
from pathlib import Path
from typing import Literal

import tyro

# jumpy data inspect data/cube-double-play-v0.npz
# jumpy data inspect data/cube-double-play-v0.npz --split val --json
# jumpy data convert maze2d.hdf5 data --name maze2d
# jumpy data list


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Say what a data set holds, and draw it."""

    path: tyro.conf.Positional[Path]
    """An npz or HDF5 file, a folder with one data set, or a Minari folder."""
    split: Literal["train", "val"] = "train"
    """Which part; val is NAME-val.npz beside NAME.npz."""
    out: Path | None = None
    """Picture file (default: NAME.png beside the data set)."""
    json: bool = False
    """Print the summary as JSON instead of a table."""
    allow: tuple[str, ...] = ()
    """Checks to let pass, such as non-finite; a message that refuses the data names them."""

    def run(self) -> None:
        """Load, measure, draw and print."""
        import sys

        from jumpyworld.data import load
        from jumpyworld.data.pictures import draw
        from jumpyworld.data.summary import summarise
        from jumpyworld.errors import ConfigError, JumpyError

        dataset = load(self.path, split=self.split, allow=self.allow)
        summary = summarise(dataset)
        picture = self.out or _beside(Path(dataset.source))
        if picture.suffix.lower() != ".png":
            raise ConfigError(f"{picture}: pictures are PNG files; --out must end in .png")
        try:
            draw(dataset, picture)
        except JumpyError as error:
            if self.out is not None:
                raise
            # No matplotlib, or data that lie where nothing can be written: the numbers are worth
            # having all the same.
            print(f"no picture: {error}", file=sys.stderr)
            picture = None
        if self.json:
            fields = summary.as_dict() | {"picture": None if picture is None else str(picture)}
            print(json_module.dumps(fields, indent=2, allow_nan=False))
            return
        _print_summary(dataset.source, summary)
        if picture is not None:
            print(f"picture: {picture}")


@dataclasses.dataclass(frozen=True)
class Convert:
    """Write a data set of another format as OGBench's: OUT/NAME.npz, NAME-val.npz, NAME.json.

    A validation set that lies beside the source is kept; otherwise the last tenth of the
    trajectories becomes one.
    """

    source: tyro.conf.Positional[Path]
    """An npz or HDF5 (D4RL) file, or a Minari folder."""
    out: tyro.conf.Positional[Path]
    """Folder for the result."""
    domain: str | None = None
    """OGBench name or alias that the data belong to, if the source does not say."""
    name: str | None = None
    """Name of the files (default: the domain's, or the source's)."""
    overwrite: bool = False
    """Replace files of that name that differ."""
    allow: tuple[str, ...] = ()
    """Checks to let pass, such as short-trajectory; a message that refuses the data names them."""

    def run(self) -> None:
        """Convert and say where the result is."""
        from jumpyworld.data.convert import convert

        path = convert(
            self.source,
            self.out,
            self.domain,
            self.name,
            overwrite=self.overwrite,
            allow=self.allow,
        )
        print(f"{path}: complete ({path.stat().st_size / 1e6:.1f} MB)")


@dataclasses.dataclass(frozen=True)
class List:
    """List the domains, with the size and the cost of their standard data sets."""

    def run(self) -> None:
        """Print one row per domain."""
        from rich.table import Table

        from jumpyworld.domains import DOMAINS

        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("alias", no_wrap=True)
        table.add_column("name", no_wrap=True)
        for title in ("obs", "act", "limit", "episodes", "MB", "core-min"):
            table.add_column(title, justify="right", no_wrap=True)
        for domain in DOMAINS:
            standard = domain.collection
            rows = standard.episodes * standard.steps
            # A tenth more is made for validation.
            minutes = 1.1 * rows / standard.rate / 60
            cells = (
                domain.alias,
                domain.name,
                domain.observation_dim,
                domain.action_dim,
                domain.max_episode_steps,
                f"{standard.episodes} x {standard.steps}",
                round(rows * domain.row_bytes / 1e6),
                f"{minutes:.0f}",
            )
            table.add_row(*map(str, cells))
        _console().print(table)
        print(
            "\nlimit: steps per evaluation episode. episodes: of the standard training set, x rows."
            "\nMB: size of its npz. core-min: one core's minutes for `jumpy data generate`."
        )


def _beside(source: Path) -> Path:
    """Return NAME.png beside a file, or beside a folder that is a data set of its own."""
    source = source.resolve()
    return source.with_name(f"{source.stem if source.is_file() else source.name}.png")


def _console():
    import sys

    from rich.console import Console

    # Into a file or a pipe a table is as wide as it needs to be; nothing is cut off.
    width = None if sys.stdout.isatty() else 200
    # A path may contain what looks like markup or the name of a picture sign.
    return Console(highlight=False, markup=False, emoji=False, width=width)


def _print_summary(source: str, summary) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, value in _lines(source, summary):
        table.add_row(key, value)
    console = _console()
    console.print(table)
    columns = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("column", "min", "max", "mean", "std"):
        columns.add_column(title, justify="left" if title == "column" else "right", no_wrap=True)
    for kind in ("observations", "actions"):
        stats = getattr(summary, kind)
        each = zip(stats.low, stats.high, stats.mean, stats.std, strict=True)
        for index, values in enumerate(each):
            columns.add_row(f"{kind} {index}", *(_number(value) for value in values))
    console.print()
    console.print(columns)


def _lines(source: str, summary) -> list[tuple[str, str]]:
    """Return the rows of the table: what was measured, and the value with its unit."""
    low, median, high = summary.lengths
    lines = [
        ("data set", source),
        ("domain", summary.domain or "not known"),
        ("transitions", f"{summary.transitions:,}"),
        ("trajectories", f"{summary.trajectories:,}"),
        ("transitions each", f"{low:,} to {high:,}, median {median:,g}"),
        ("saturated actions", f"{_percent(summary.saturated)} of entries"),
        ("change per step", f"{_number(summary.displacement)} in observation units"),
    ]
    if summary.goals_per_trajectory is not None:
        lines.append(("goals reached", f"{summary.goals_per_trajectory:.2f} per trajectory"))
    if maze := summary.maze:
        if maze.cells_free is not None:
            lines.append(("cells visited", f"{maze.cells_visited} of {maze.cells_free} free"))
            lines.append(("in walls", f"{_percent(maze.in_wall)} of states"))
        lines.append(("speed", f"{_number(maze.speed)} m/s"))
        lines.append(("stuck", f"{_percent(maze.stuck)} of 10-step windows (< 0.2 m)"))
        if maze.upside_down is not None:
            lines.append(("upside down", f"{_percent(maze.upside_down)} of states"))
    if cubes := summary.cubes:
        lines += [
            ("cubes moving", f"{_each(cubes.moving)} of steps (> 1 mm)"),
            ("cubes lifted", f"{_each(cubes.lifted)} of states (> 3 cm)"),
            (
                "lifts",
                " / ".join(f"{n:.2f}" for n in cubes.lifts_per_trajectory) + " per trajectory",
            ),
            ("table covered", f"{_each(cubes.table_coverage)} of 60 bins"),
            ("stacked", f"{_percent(cubes.stacked)} of steps"),
        ]
    shown = summary.remarks[:5]
    lines += [("remark", text) for text in shown]
    if len(summary.remarks) > len(shown):
        lines.append(("remark", f"and {len(summary.remarks) - len(shown)} more like these"))
    return lines


def _each(shares) -> str:
    return " / ".join(map(_percent, shares))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
