"""A dataset and its process: threads at the end of the interpreter, Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import assert_ends


def test_threads_that_read_when_the_interpreter_ends_do_no_harm(index: Path) -> None:
    script = """
def read():
    while True:
        for sample in ds.where("cls >= 0"):
            sample.bytes("bin")
        for sample in ds.samples(range(103)):
            sample.bytes("bin")
        passed.release()
passed = threading.Semaphore(0)
for _ in range(4):
    threading.Thread(target=read, daemon=True).start()
for _ in range(12):
    passed.acquire()
"""
    assert_ends(index, script, may_leak=True)


@pytest.mark.parametrize("threads", [0, 2])
def test_progress_that_is_called_when_the_interpreter_ends_does_no_harm(
    index: Path, threads: int
) -> None:
    script = f"""
folder = os.path.dirname(sys.argv[1])
def build(number):
    while True:
        shardwise.index(f"{{folder}}/{{number}}.idx", f"{{folder}}/shards", threads={threads},
                        progress=progress)
def progress(seen):
    time.sleep(0.001)
    passed.release()
passed = threading.Semaphore(0)
for number in range(4):
    threading.Thread(target=build, args=(number,), daemon=True).start()
for _ in range(40):
    passed.acquire()
"""
    for _ in range(3):
        assert_ends(index, script, may_leak=True)


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
