"""A loader and its process: Ctrl-C, fork, the end of the interpreter."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from conftest import assert_ends, run_script

import shardwise
from shardwise import Loader, columns, errors

BLOCKED = """
def wait(sample, random):
    entered.set()
    while not go.wait(0.01):
        pass
    return sample.index
entered, go = threading.Event(), threading.Event()
made = columns.function("f", "int64", (), wait)
loader = Loader(ds, columns=[made], batch_size=2, threads=THREADS)
def interrupt():
    entered.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
"""


def test_ctrl_c_ends_a_wait_and_loses_no_batch(index: Path) -> None:
    script = (
        BLOCKED.replace("THREADS", "2")
        + """
try:
    loader.next()
except KeyboardInterrupt:
    print("interrupted", go.is_set())
go.set()
print(sum(len(batch) for batch in loader), loader.prove())
"""
    )
    assert_ends(
        index, script, "interrupted False\n103 epoch 0: 103 samples, each exactly once: proven\n"
    )


def test_ctrl_c_without_threads_stops_the_loader(index: Path) -> None:
    script = (
        BLOCKED.replace("THREADS", "0")
        + """
threading.Timer(0.3, go.set).start()  # the function that runs has to end
try:
    loader.next()
except KeyboardInterrupt:
    print("interrupted")
try:
    loader.next()
except shardwise.errors.Cancelled as error:
    print(error)
loader.load_state_dict(loader.state_dict())
print(sum(len(batch) for batch in loader), loader.prove())
"""
    )
    assert_ends(
        index,
        script,
        "interrupted\nthe loader was stopped\n"
        "103 epoch 0: 103 samples, each exactly once: proven\n",
    )


@pytest.mark.parametrize("threads", [0, 2])
def test_an_interrupt_does_not_cost_a_batch_that_comes_with_it(index: Path, threads: int) -> None:
    script = f"""
import _thread
def interrupts(sample, random):
    if sample.index == 40:
        _thread.interrupt_main()
    return sample.index
made = columns.function("f", "int64", (), interrupts)
loader = Loader(ds, columns=[made], batch_size=103, threads={threads})
try:
    batch = loader.next()
except KeyboardInterrupt:
    print("interrupted")
    batch = loader.next()
print(sorted(batch["f"].tolist()) == list(range(103)), loader.prove())
"""
    assert_ends(
        index,
        script,
        "interrupted\nTrue epoch 0: 103 samples, each exactly once: proven\n",
    )


def test_a_handler_that_does_not_raise_does_not_end_a_wait(index: Path) -> None:
    script = """
def wait(sample, random):
    entered.set()
    while not go.wait(0.01):
        pass
    return sample.index
entered, go = threading.Event(), threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: (print("handled", ds[3].key), go.set()))
loader = Loader(ds, columns=[columns.function("f", "int64", (), wait)], batch_size=103, threads=1)
threading.Thread(target=lambda: (entered.wait(), os.kill(os.getpid(), signal.SIGUSR1))).start()
print(len(loader.next()))
"""
    assert_ends(index, script, "handled 000003\n103\n")


@pytest.mark.parametrize("threads", [0, 3])
def test_the_interpreter_ends_with_a_live_loader(index: Path, threads: int) -> None:
    script = f"""
import numpy as np
made = columns.function("f", "float32", (300,), lambda s, r: np.ones(300).astype(np.float32))
decoded = columns.decoded("bin", "uint8", None, lambda d, r: d)
loader = Loader(ds, columns=[made, decoded], batch_size=4, threads={threads})
batches = iter(loader)
kept = [next(batches)["f"] for _ in range(3)]
print(len(kept))
"""
    for _ in range(3):
        assert_ends(index, script, "3\n")


def test_the_interpreter_ends_while_a_daemon_waits(index: Path) -> None:
    script = """
entered = threading.Event()
def wait(sample, random):
    entered.set()
    time.sleep(0.005)
    return 0
loader = Loader(ds, columns=[columns.function("f", "int64", (), wait)], batch_size=103, threads=2)
def consume():
    try:
        for batch in loader:
            pass
    except shardwise.errors.Cancelled:
        pass
threading.Thread(target=consume, daemon=True).start()
entered.wait()
print("ends")
"""
    for _ in range(3):
        assert_ends(index, script, "ends\n")


def test_the_interpreter_ends_with_an_exception_in_flight(index: Path) -> None:
    done = run_script(
        index,
        """
def fails(sample, random):
    raise LookupError("it is not there")
loader = Loader(ds, columns=[columns.function("f", "int64", (), fails)], threads=2)
loader.start()
loader.next()
""",
    )
    assert done.returncode == 1
    assert done.stderr.rstrip().splitlines()[-2:][0].startswith("LookupError: it is not there")
    assert "function of column 'f'" in done.stderr


def test_leaving_loops_early_does_not_hang(index: Path) -> None:
    script = """
for threads in (0, 1, 3):
    for taken in range(5):
        made = columns.function("f", "int64", (), lambda s, r: 1)
        loader = Loader(ds, columns=[columns.bytes("bin"), made], batch_size=5, threads=threads)
        for number, batch in enumerate(loader):
            if number == taken:
                break
print("left")
"""
    assert_ends(index, script, "left\n")


def test_an_exception_that_another_one_replaces_goes_without_a_lock(index: Path) -> None:
    script = """
class Own(Exception):
    def add_note(self, note):
        failed.set()
    def __del__(self):
        loader.stop()  # takes the lock that the loader's threads take
def fails(sample, random):
    if sample.index == 0:
        failed.wait(1)  # without a GIL an Own of the round before may stop this loader first
    raise Own
rounds = 0
for _ in range(200):
    failed = threading.Event()
    loader = Loader(ds, columns=[columns.function("f", "int64", (), fails)],
                    order=shardwise.Order("sequential"), batch_size=2, threads=2)
    try:
        loader.next()
    except (Own, shardwise.errors.Cancelled):
        rounds += 1
print(rounds)
"""
    assert_ends(index, script, "200\n")


def test_a_loader_may_be_collected_by_its_own_thread(index: Path) -> None:
    script = """
class Holder:
    pass
def collect(sample, random):
    dropped.wait()
    gc.collect()
    return 0
gc.disable()
for _ in range(20):
    dropped = threading.Event()
    holder = Holder()
    holder.itself = holder
    holder.loader = Loader(ds, columns=[columns.function("f", "int64", (), collect)], threads=2)
    holder.loader.start()
    gone = threading.Event()  # asking the reference would hold the holder while it is collected
    left = weakref.ref(holder, lambda _: gone.set())
    del holder
    dropped.set()
    for _ in range(30):  # of two threads that collect at once one comes away with nothing
        if gone.wait(1):
            break
        gc.collect()
    else:
        sys.exit("the loader was kept")
print("collected")
"""
    assert_ends(index, script, "collected\n")


def test_a_function_may_not_move_its_loader(index: Path) -> None:
    script = """
errors = []
def moves(sample, random):
    try:
        loader.set_epoch(3)
    except shardwise.errors.Unsupported as error:
        errors.append(str(error))
    return sample.index
loader = Loader(ds, columns=[columns.function("f", "int64", (), moves)], batch_size=103, threads=2)
loader.start()
while not errors:
    time.sleep(0.001)
print(len(loader.next()), loader.prove(), "function of a column" in errors[0])
"""
    assert_ends(index, script, "103 epoch 0: 103 samples, each exactly once: proven True\n")


@pytest.mark.parametrize("threads", [0, 1])
def test_a_function_may_not_walk_through_another_loader(index: Path, threads: int) -> None:
    script = f"""
def walks(sample, random):
    return sum(len(batch) for batch in Loader(ds, columns=[columns.key()], threads=0))
made = columns.function("f", "int64", (), walks)
try:
    Loader(ds, columns=[made], threads={threads}).next()
except shardwise.errors.Unsupported as error:
    for part in ("function of a column; ", "a Dataset", "stop(), stats() and summary()"):
        print(part in str(error))
"""
    assert_ends(index, script, "True\nTrue\nTrue\n")


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.key()], batch_size=10, threads=2)
    loader.next()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text = "nothing was raised"
        try:
            loader.next()
        except errors.Unsupported as error:
            text = str(error)
        own = Loader(ds, columns=[columns.key()], threads=1)
        text += f"; {sum(len(batch) for batch in own)}, {own.prove()}"
        del loader
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert "forked child" in text
    assert text.endswith("; 103, epoch 0: 103 samples, each exactly once: proven")
    assert sum(len(batch) for batch in loader) == 93


def test_other_threads_run_while_a_batch_is_waited_for(ds: shardwise.Dataset) -> None:
    go = threading.Event()
    loader = Loader(
        ds,
        columns=[columns.function("f", "int64", (), lambda s, r: go.wait() and 1)],
        batch_size=4,
        threads=1,
    )
    threading.Timer(0.05, go.set).start()  # never runs if the GIL is not released
    assert loader.next() is not None
