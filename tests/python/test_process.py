"""A dataset and its process: threads at the end of the interpreter, Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BEGIN = """
import os, signal, sys, threading
import shardwise
ds = shardwise.open(sys.argv[1])
"""


def assert_ends(index: Path, script: str, output: str = "") -> None:
    """Runs a script in a process of its own. It ends long before the limit, or hangs for ever.
    Threads that the end of the interpreter stops keep what they hold, which nanobind says in
    builds with tests."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", BEGIN + script, str(index)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
    leaks = ("nanobind: ", " - ", "See https://nanobind")
    assert [line for line in done.stderr.splitlines() if not line.startswith(leaks)] == []


def test_threads_that_read_when_the_interpreter_ends_do_no_harm(index: Path) -> None:
    script = """
def read():
    while True:
        for sample in ds.where("cls >= 0"):
            sample.bytes("bin")
        passed.release()
passed = threading.Semaphore(0)
for _ in range(4):
    threading.Thread(target=read, daemon=True).start()
for _ in range(12):
    passed.acquire()
"""
    assert_ends(index, script)


def test_ctrl_c_ends_a_long_condition(index: Path) -> None:
    script = """
def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)
begun = threading.Event()
thread = threading.Thread(target=interrupt)
thread.start()
tables = ", ".join(f"samples s{i}" for i in range(8))
try:
    begun.set()
    ds.where(f"(SELECT count(*) FROM {tables}) > cls")
except KeyboardInterrupt:
    print("interrupted")
thread.join()
print(len(ds.where("cls >= 0")))
"""
    assert_ends(index, script, "interrupted\n103\n")
