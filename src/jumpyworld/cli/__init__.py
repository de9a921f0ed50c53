"""The command ``jumpy``: thin doors into the library.

Each verb is a frozen dataclass with a ``run`` method in a module of its own. Those modules import
nothing heavy at their top, so that ``jumpy --help`` answers at once; the library is imported when a
verb runs.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

from jumpyworld._version import __version__
from jumpyworld.cli.flags import in_flags
from jumpyworld.cli.usage import complaints_on_one_line
from jumpyworld.errors import JumpyError


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 nobody reads, 2 bad input, 130 interrupted."""
    status = run(argv)
    if status == 130:
        # At once: JAX's threads may crash an interpreter that shuts down while they still work.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    command = None
    try:
        if list(arguments) == ["--version"]:
            print(f"jumpyworld {__version__}")
            return 0
        command = parse(arguments)  # which prints the help, too
        command.run()
    except JumpyError as error:
        said = " ".join(str(error).split())
        said = said if command is None else in_flags(said, command)
        print(f"jumpy: error: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"jumpy: interrupted {error}".rstrip(), file=sys.stderr)
        return 130
    except (MemoryError, RuntimeError) as error:
        said = " ".join(str(error).split())[:300]
        # The second is what JAX, which nobody imports for this, says of a device's memory.
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in said:
            raise
        print(f"jumpy: error: not enough memory: {said or 'ask for less'}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (``jumpy ... | head``) has gone: stop quietly, and keep Python from
        # complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def parse(arguments: Sequence[str]) -> Any:
    """Return the command that the words of a command line ask for."""
    import tyro

    from jumpyworld.cli.bench import Bench
    from jumpyworld.cli.data import Data
    from jumpyworld.cli.demo import Demo
    from jumpyworld.cli.eval import Eval
    from jumpyworld.cli.export import Export
    from jumpyworld.cli.fidelity import Fidelity
    from jumpyworld.cli.info import Info
    from jumpyworld.cli.report import Report
    from jumpyworld.cli.sweep import Sweep
    from jumpyworld.cli.train import Train
    from jumpyworld.cli.view import View

    commands = Demo | Data | Train | Export | Eval | Fidelity | Sweep | Report | Bench | View | Info
    verbs = tyro.conf.OmitSubcommandPrefixes[tyro.conf.OmitArgPrefixes[commands]]
    with complaints_on_one_line():
        return tyro.cli(
            verbs,
            prog="jumpy",
            description="Plan by composing pre-trained policies with jumpy world models.",
            args=arguments,
        )
