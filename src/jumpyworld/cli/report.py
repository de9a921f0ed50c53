"""``jumpy report``: results as tables, ours beside the paper's."""

import dataclasses
from pathlib import Path

# jumpy report --results sweep/results --out report.md --figures figures
# jumpy report --results results sweep/results/cube-2/gcbc/0/success.jsonl --out report.md


@dataclasses.dataclass(frozen=True)
class Report:
    """Write a Markdown report of result rows: every table of the paper, ours beside its numbers.

    With n, 95 % intervals, device and time. Cells without a result are shown as such; rows that
    fit no table are listed or counted, none is dropped. The same rows give the same file.
    """

    results: tuple[Path, ...]
    """Files with result rows, or folders with such files (*.jsonl) at any depth."""
    out: Path = Path("report.md")
    """The Markdown file."""
    figures: Path | None = None
    """Folder for bar charts; the report shows them."""

    def run(self) -> None:
        """Read, write, and say how much there was."""
        import os

        from jumpyworld.errors import ConfigError, unwritable
        from jumpyworld.experiments import charts, report, results
        from jumpyworld.storage.files import atomic_file

        if not self.results:
            raise ConfigError("--results is missing: name files or folders with result rows")
        found = results.collect(*results.read(self.results))
        drawn = charts.draw(found, self.figures) if self.figures is not None else []
        beside = self.out.absolute().parent
        named = [(name, Path(os.path.relpath(path, beside)).as_posix()) for name, path in drawn]
        text = report.markdown(found, named)
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.out) as file:
                file.write(text.encode())
        except OSError as error:
            raise unwritable(self.out, error) from error
        print(
            f"{self.out}: {len(found.success)} cells of success, {len(found.others)} further "
            f"measurements of them, {len(found.fidelity)} fidelity and {len(found.speed)} speed "
            f"rows, {len(found.aside)} rows aside"
            + (f"; {len(drawn)} figures in {self.figures}" if self.figures is not None else "")
        )
