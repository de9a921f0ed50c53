"""A process that ends while programs compile: it waits for the one in hand, and aborts never."""

import subprocess
import sys

ENDING = """
import threading
from types import SimpleNamespace

import jax, jax.numpy as jnp
from jumpyworld.viewer import engine
from jumpyworld.viewer.session import Program

def heavy(x):
    for i in range(400):
        x = jnp.sin(x @ x) + i
    return x

def compiled():
    begun.set()
    jax.jit(heavy).lower(jnp.ones((8, 8))).compile()
    print("done", flush=True)

def never():
    print("begun though closed", flush=True)

begun = threading.Event()
programs = [
    Program("samples", lambda: None, first=True),
    Program("painting", compiled, first=False),
    Program("behaviour", never, first=False),
]
session = SimpleNamespace(compiled=set(), failed={}, programs=lambda: programs)
engine.Session = lambda model, effort: session
page = engine.Engine([SimpleNamespace(id="m0")])
# A server in a thread that need not end hands this on to the threads that it begins.
threading.Thread(target=page.warm_up, daemon=True).start()
assert begun.wait(30)
page.close()
"""


def test_a_process_that_ends_waits_for_the_program_in_hand_and_begins_no_other():
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
