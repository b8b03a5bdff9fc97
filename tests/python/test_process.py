"""A dataset and its process: threads at exit, and Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import assert_ends, run_script

import shardwise


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


def test_a_fork_waits_for_an_import_of_another_thread(index: Path, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("import sys\nsys.begun.set()\nsys.forks.wait()\n")
    script = f"""
import importlib
shardwise.__path__.append({str(tmp_path)!r})
sys.begun, sys.forks = threading.Event(), threading.Event()
thread = threading.Thread(target=importlib.import_module, args=("shardwise.late",))
thread.start()
sys.begun.wait()
os.register_at_fork(before=sys.forks.set)  # runs before the hooks that were registered earlier
child = os.fork()
if child == 0:
    signal.alarm(20)
    importlib.import_module("shardwise.late")
    os._exit(0)
print(os.waitpid(child, 0)[1])
thread.join()
"""
    assert_ends(index, script, "0\n")


@pytest.mark.parametrize(
    "call",
    [
        "ds.where(LONG)",
        "Loader(ds, columns=[columns.key()], by_group=shardwise.ByGroup(LONG))",
    ],
)
def test_ctrl_c_ends_a_long_condition(index: Path, call: str) -> None:
    script = """
def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)
begun = threading.Event()
thread = threading.Thread(target=interrupt)
thread.start()
tables = ", ".join(f"samples s{i}" for i in range(8))
LONG = f"(SELECT count(*) FROM {tables}) > cls"
try:
    begun.set()
    CALL
except KeyboardInterrupt:
    print("interrupted")
thread.join()
print(len(ds.where("cls >= 0")))
"""
    assert_ends(index, script.replace("CALL", call), "interrupted\n103\n")


# Calls all methods of each class of the extension with an object whose __init__() has not run, and
# with an object of another class. Prints each call before it, so that the last one printed is one
# that crashes.
WALK = """
import copy, importlib.util, inspect, operator, pickle, warnings
warnings.simplefilter("ignore")  # nanobind's, of each such object that a function is given
os.chdir(os.path.dirname(sys.argv[1]))
modules = [importlib.import_module("shardwise." + name) for name in ("_core", "_video")
           if importlib.util.find_spec("shardwise." + name)]
kinds = [kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)]
calls = raised = 0
def call(text, function, *arguments):
    global calls, raised
    print(text, file=sys.stderr, flush=True)
    calls += 1
    try:
        function(*arguments)
    except Exception:
        raised += 1
OPERATORS = [len, iter, next, repr, str, hash, bool, memoryview, bytes, dict, list, tuple, reversed,
             operator.index, copy.copy, copy.deepcopy, pickle.dumps, pickle._dumps, weakref.ref,
             lambda o: o == o, lambda o: o < o, lambda o: 0 in o, lambda o: "jpg" in o,
             lambda o: o[0], lambda o: o[0:1], lambda o: o["jpg"], lambda o: o[[0]],
             lambda o: o.__setstate__({}), lambda o: o.__dict__]
ARGUMENTS = [(), (0,), ("jpg",), ([0],), (0, "jpg"), ("jpg", 0), ({},), (None,)]
PASSED = ("__new__", "__class__", "__init_subclass__", "__subclasshook__", "__getattribute__",
          "__setattr__", "__delattr__", "__dir__")
def derived(kind):
    try:
        class Derived(kind):
            def __init__(self): pass
    except TypeError:  # it is final
        return None
    return Derived
def walk(kind, made):
    for operation in OPERATORS:
        call(f"{kind.__name__}: {operation}", operation, made())
    for name in dir(kind):
        if name in PASSED:
            continue
        found = inspect.getattr_static(kind, name)
        if isinstance(found, property):
            for self in (made(), object(), 5):
                call(f"{kind.__name__}.{name}", found.fget, self)
        elif callable(found):
            for arguments in ARGUMENTS:
                for self in (made(), object(), 5):
                    call(f"{kind.__name__}.{name} of {type(self)} {arguments}", found, self, *arguments)
            call(f"{kind.__name__}.{name} with itself", found, made(), made())
for kind in kinds:
    walk(kind, lambda: kind.__new__(kind))
    heir = derived(kind)
    if heir is not None:
        walk(heir, heir)
for module in modules:
    for name, function in vars(module).items():
        if callable(function) and not inspect.isclass(function):
            for kind in kinds:
                for others in ((), (0,), ("jpg",)):
                    call(f"{name}({kind.__name__}, ...)", function, kind.__new__(kind), *others)
                    call(f"{name}(..., {kind.__name__})", function, *others, kind.__new__(kind))
loop = [kind.__new__(kind) for kind in kinds]
loop.append(loop)
del loop
gc.collect()
print(len(kinds) > 10, calls > 2000, raised > 2000)
"""


def test_objects_whose_init_has_not_run_raise_and_do_not_kill(index: Path) -> None:
    done = run_script(index, WALK)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "True True True\n"


def test_classes_that_functions_make_are_final() -> None:
    for kind in (shardwise.Dataset, shardwise.Sample, shardwise.Batch, shardwise.SamplerIterator):
        with pytest.raises(TypeError, match="prohibits subclassing"):
            type("Derived", (kind,), {})

    class Derived(shardwise.Sampler):
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError), pytest.warns(RuntimeWarning, match="uninitialized"):
        len(Derived())
    empty = shardwise.Dataset.__new__(shardwise.Dataset)
    for call in (len, lambda ds: ds[0], lambda ds: "a" in ds):
        with pytest.raises(TypeError, match="this Dataset .*__init__"):
            call(empty)
