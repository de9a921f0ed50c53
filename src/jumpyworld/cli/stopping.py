"""A word at once on Ctrl-C: Python acts on a signal only when a compilation is over.

The interpreter's own handler, in C, does run at once, and can write the signal's number to a
socket; a thread that reads there says that the signal was heard.
"""

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def answers_signals() -> Iterator[None]:
    """Print a line as soon as a SIGINT or SIGTERM comes that Python handles; once.

    A context, or a decorator.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    reader = threading.Thread(target=_listen, args=(ours,), daemon=True)
    reader.start()
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        theirs.close()  # which ends the thread
        reader.join()
        ours.close()


def _listen(heard: socket.socket) -> None:
    said = False
    while numbers := heard.recv(64):
        if not said and {signal.SIGINT, signal.SIGTERM} & set(numbers):
            said = True
            print("jumpy: stopping ...", file=sys.stderr, flush=True)
