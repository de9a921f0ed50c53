"""Ctrl-C is answered at once, although Python acts on it only later."""

import subprocess
import sys
import threading
import time

from jumpyworld.cli.stopping import answers_signals

# The work is in C and lets other threads run, as a compilation does; a signal cannot cut it short.
WORK = """
import hashlib, os, signal, threading
from jumpyworld.cli.stopping import answers_signals

@answers_signals()
def run():
    with answers_signals():  # as the demo runs an evaluation
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 5_000_000)

try:
    run()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_a_line_comes_long_before_the_end():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([sys.executable, "-c", WORK], **pipes) as process:
        assert process.stdout is not None
        lines = [(line, time.monotonic()) for line in process.stdout]
    assert process.returncode == 0
    assert [line for line, _ in lines] == ["jumpy: stopping ...\n", "interrupted\n"]
    assert lines[1][1] - lines[0][1] > 0.2


def test_other_threads_do_without(capsys):
    done = []

    def run():
        with answers_signals():
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done and capsys.readouterr().err == ""
