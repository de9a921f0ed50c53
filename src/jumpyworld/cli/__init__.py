"""The command ``jumpy``: thin doors into the library.

Each verb is a frozen dataclass with a ``run`` method in a module of its own. Those modules import
nothing heavy at their top, so that ``jumpy --help`` answers at once; the library is imported when a
verb runs.
"""

import os
import sys
from collections.abc import Sequence

from jumpyworld.errors import JumpyError


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 nobody reads, 2 bad input, 130 interrupted."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    import tyro

    from jumpyworld.cli.data import Data
    from jumpyworld.cli.demo import Demo
    from jumpyworld.cli.info import Info

    verbs = tyro.conf.OmitSubcommandPrefixes[tyro.conf.OmitArgPrefixes[Demo | Data | Info]]
    try:
        command = tyro.cli(
            verbs,
            prog="jumpy",
            description="Plan by composing pre-trained policies with jumpy world models.",
            args=argv,
        )
        command.run()
    except JumpyError as error:
        print(f"jumpy: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("jumpy: interrupted; the same command continues", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (``jumpy ... | head``) has gone: stop quietly, and keep Python from
        # complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0
