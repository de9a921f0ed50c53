"""Matplotlib's figures as files: one way to begin one, one way to write it.

The object interface alone: no window, no global figure, no global settings. Equal figures give
equal files, because what wrote them is not in them.
"""

from pathlib import Path
from typing import Any

from jumpyworld.errors import MissingExtraError, unwritable
from jumpyworld.storage.files import atomic_file


def new_figure(size: tuple[float, float] | None = None, *, dpi: int) -> Any:
    """Return an empty white figure.

    Args:
        size: width and height in inches; None where it is set later.
        dpi: pixels of an inch.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots") from error
    return Figure(size, dpi=dpi, layout="constrained", facecolor="white")


def write_png(figure: Any, path: Path | str) -> None:
    """Write a figure into a PNG file, complete or not at all.

    Raises:
        DataError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    try:
        with atomic_file(Path(path)) as file:
            FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})
    except OSError as error:
        raise unwritable(path, error) from error
