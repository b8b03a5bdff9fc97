"""Columns that functions written in Python make, and how long a batch's memory lives."""

from __future__ import annotations

import array
import gc
import resource
import threading
import time
import tracemalloc
import types
import weakref
from typing import Any

import numpy as np
import pytest

import shardwise
from shardwise import Loader, Order, columns, errors

THREADS = pytest.mark.parametrize("threads", [0, 1, 3])


def one_batch(data: shardwise.Dataset, *made: columns.Column, **options: Any) -> shardwise.Batch:
    batch = Loader(data, columns=list(made), order=Order("sequential"), **options).next()
    assert batch is not None
    return batch


@THREADS
def test_a_function_gives_arrays_bytes_or_numbers(ds: shardwise.Dataset, threads: int) -> None:
    batch = one_batch(
        ds,
        columns.function("array", "float32", (2,), lambda s, r: np.array([s.index, 7], np.float32)),
        columns.function("strided", "int16", (3,), lambda s, r: np.arange(6, dtype=np.int16)[::2]),
        columns.function("bytes", "int32", (1,), lambda s, r: np.int32(s.index).tobytes()),
        columns.function("number", "float64", (), lambda s, r: s.index / 2),
        columns.function("list", "uint16", (2,), lambda s, r: [s.index, 1]),
        columns.function("scalar", "float32", (), lambda s, r: np.float32(s.index)),
        columns.function("std", "int32", (2,), lambda s, r: array.array("i", [s.index, -1])),
        columns.function("bool", "bool", (2,), lambda s, r: np.array([True, False])),
        columns.function("half", "bfloat16", (1,), lambda s, r: np.array([0x3F80], np.uint16)),
        columns.function("empty", "int8", (0,), lambda s, r: b""),
        columns.function("ragged", "int64", None, lambda s, r: np.arange(s.index % 3)),
        columns.function("grid", "int8", None, lambda s, r: np.ones((s.index % 2, 2), np.int8)),
        columns.function("rest", "int16", None, lambda s, r: memoryview(b"\1\0\2\0")),
        batch_size=5,
        threads=threads,
    )
    index = np.arange(5)
    assert (batch["array"] == np.stack([index, np.full(5, 7)], 1)).all()
    assert (batch["strided"] == [0, 2, 4]).all() and batch["strided"].dtype == np.int16
    assert (batch["bytes"][:, 0] == index).all()
    assert (batch["number"] == index / 2).all() and batch["number"].shape == (5,)
    assert batch["list"].tolist() == [[i, 1] for i in range(5)]
    assert (batch["scalar"] == index).all()
    assert batch["std"].tolist() == [[i, -1] for i in range(5)]
    assert batch["bool"].tolist() == [[True, False]] * 5
    assert batch["half"].dtype == np.uint16 and (batch["half"] == 0x3F80).all()
    assert batch["empty"].shape == (5, 0)
    assert [row.tolist() for row in batch["ragged"]] == [[], [0], [0, 1], [], [0]]
    assert [row.shape for row in batch["grid"]] == [(0, 2), (1, 2), (0, 2), (1, 2), (0, 2)]
    assert [row.tolist() for row in batch["rest"]] == [[1, 2]] * 5


def test_what_is_not_as_declared_is_refused(ds: shardwise.Dataset) -> None:
    cases: list[tuple[str, Any, Any, type[Exception], str]] = [
        (
            "float32",
            (2,),
            np.zeros(2),
            errors.InvalidArgument,
            "column 'f', sample 0 .* type: format 'd' of 8 bytes .*float32",
        ),
        ("float32", (2,), np.zeros(3, np.float32), errors.BadField, r"\[3\] instead of \[2\]"),
        ("float32", (2,), b"1234", errors.BadField, "4 bytes of float32 instead of 8"),
        ("float32", None, b"12345", errors.BadField, "5 bytes of float32; "),
        ("float32", (2,), None, errors.InvalidArgument, "did not return an array: NoneType"),
        ("uint8", (2,), np.zeros(2, np.int8), errors.InvalidArgument, "format 'b'"),
        ("int64", (), "text", ValueError, "text"),
    ]
    for dtype, shape, result, error, text in cases:
        with pytest.raises(error, match=text):
            one_batch(ds, columns.function("f", dtype, shape, lambda s, r: result))
    with pytest.raises(errors.InvalidArgument, match="-1"):
        columns.function("f", "int8", (-1,), lambda s, r: b"")


@THREADS
def test_random_keys_do_not_depend_on_threads_batches_or_a_resume(
    ds: shardwise.Dataset, threads: int
) -> None:
    def key(sample: shardwise.Sample, random: int) -> bytes:
        return random.to_bytes(16, "little")

    def keys(threads: int, batch_size: int, skip: int = 0) -> dict[int, bytes]:
        def make() -> Loader:
            return Loader(
                ds,
                columns=[columns.function("r", "uint8", (16,), key)],
                order=Order(seed=3),
                batch_size=batch_size,
                threads=threads,
            )

        loader = make()
        if skip:
            batches = iter(loader)
            for _ in range(skip):
                next(batches)
            state = loader.state_dict()
            loader = make()
            loader.load_state_dict(state)
        return {int(s): row.tobytes() for b in loader for s, row in zip(b.samples, b["r"])}

    expected = keys(0, 10)
    assert len(set(expected.values())) == 103
    assert keys(threads, 7) == expected
    resumed = keys(threads, 10, skip=4)
    assert len(resumed) == 63 and all(expected[s] == value for s, value in resumed.items())


@THREADS
def test_what_a_function_raises_reaches_the_consumer(ds: shardwise.Dataset, threads: int) -> None:
    class Own(Exception):
        pass

    thrown = Own("of my own")

    def fails(sample: shardwise.Sample, random: int) -> int:
        if sample.index == 12:
            raise thrown
        return sample.index

    loader = Loader(
        ds,
        columns=[columns.function("f", "int64", (), fails)],
        order=Order("sequential"),
        batch_size=10,
        threads=threads,
    )
    first = loader.next()
    assert first is not None and first["f"].tolist() == list(range(10))
    with pytest.raises(Own, match="of my own") as caught:
        loader.next()
    assert caught.value is thrown
    assert (
        "column 'f', sample 12 ('000012') in shard" in caught.value.__notes__[0]
    )
    assert any(frame.name == "fails" for frame in caught.traceback)
    third = loader.next()
    assert third is not None and third["f"].tolist() == list(range(20, 30))
    while loader.next() is not None:
        pass
    with pytest.raises(errors.NotExact, match="at least 10 missing"):
        loader.prove()


@THREADS
def test_a_state_stands_before_what_raised(ds: shardwise.Dataset, threads: int) -> None:
    class Loud(Exception):
        pass

    fails = True

    def made(sample: shardwise.Sample, random: int) -> int:
        if fails and sample.index == 12:
            raise Loud
        return sample.index

    def loader() -> Loader:
        column = columns.function("f", "int64", (), made)
        order = Order("sequential")
        return Loader(ds, columns=[column], order=order, batch_size=10, threads=threads)

    ended = loader()
    delivered: list[int] = []
    with pytest.raises(Loud):
        for batch in ended:
            delivered += batch["f"].tolist()
    state = ended.state_dict()
    assert state["batches"] == 1
    assert ended.next() is not None
    with pytest.raises(errors.NotExact, match="batches are missing"):
        ended.state_dict()
    fails = False
    resumed = loader()
    resumed.load_state_dict(state)
    assert len(resumed) == 11
    for batch in resumed:
        delivered += batch["f"].tolist()
    assert delivered == list(range(103))
    assert resumed.prove().endswith("proven")


def test_errors_of_the_library_in_a_function_keep_their_class(ds: shardwise.Dataset) -> None:
    def no_field(sample: shardwise.Sample, random: int) -> Any:
        return sample["nope"]

    def bad(sample: shardwise.Sample, random: int) -> int:
        if sample.index % 10 == 3:
            raise errors.BadField("no good")
        return 1

    with pytest.raises(errors.NotFound, match="nope"):
        one_batch(ds, columns.function("f", "uint8", None, no_field))
    with pytest.raises(errors.BadField, match="no good"):
        one_batch(ds, columns.function("f", "int64", (), bad))
    loader = Loader(ds, columns=[columns.function("f", "int64", (), bad)], max_bad=10)
    assert sum(len(batch) for batch in loader) == 103 - 10
    loader.prove()
    assert sorted(loader.bad_samples) == list(range(3, 103, 10))
    assert loader.bad_samples[3] == "no good"


def test_base_exceptions_end_a_batch(ds: shardwise.Dataset) -> None:
    def leaves(*_: Any) -> int:
        raise SystemExit(3)

    for column in (
        columns.function("f", "int64", (), leaves),
        columns.decoded("bin", "int64", (), leaves),
    ):
        with pytest.raises(SystemExit):
            one_batch(ds, column, max_bad=100)


@THREADS
def test_a_decoder_gets_the_bytes_of_a_field(ds: shardwise.Dataset, threads: int) -> None:
    def decode(data: bytes, random: int) -> np.ndarray[Any, Any]:
        assert type(data) is bytes and 0 <= random < 1 << 128
        return np.frombuffer(data, np.uint8)[:2].astype(np.float32)

    batch = one_batch(
        ds, columns.decoded("nothing;bin", "float32", None, decode), batch_size=6, threads=threads
    )
    assert [row.tolist() for row in batch["nothing"]] == [[0.0]] + [
        [float(i)] * 2 for i in range(1, 6)
    ]


def test_what_a_decoder_raises_says_that_the_bytes_are_bad(ds: shardwise.Dataset) -> None:
    def decode(data: bytes, random: int) -> int:
        if data == b"7":
            raise KeyError("what \ud800 it lacks")
        return int(data)

    column = columns.decoded("cls", "int64", (), decode)
    with pytest.raises(errors.BadField, match="KeyError.*it lacks") as caught:
        one_batch(ds, column)
    assert "'cls'" in str(caught.value) and "000007" in str(caught.value)
    assert 7 not in one_batch(ds, column, max_bad=1)["cls"]
    with pytest.raises(MemoryError):
        one_batch(
            ds, columns.decoded("cls", "int64", (), lambda d, r: bytearray(1 << 62)), max_bad=9
        )


def name_error(data: bytes, random: int) -> Any:
    return undefined  # type: ignore[name-defined]  # noqa: F821


def import_error(data: bytes, random: int) -> Any:
    import no_such_module  # type: ignore[import-not-found]  # noqa: F401


def type_error(data: bytes, random: int) -> Any:
    return data + random  # type: ignore[operator]


def one_argument(data: bytes) -> int:
    return 1


@THREADS
@pytest.mark.parametrize(
    ("decode", "kind", "text"),
    [
        (name_error, NameError, "undefined"),
        (import_error, ImportError, "no_such_module"),
        (type_error, errors.BadField, r"first 1\d\d samples are bad: .*TypeError"),
        (one_argument, errors.BadField, r"first 1\d\d .*takes 1 positional"),
    ],
)
def test_a_mistake_in_a_decoder_is_no_bad_sample(
    ds: shardwise.Dataset, threads: int, decode: Any, kind: type[Exception], text: str
) -> None:
    column = columns.decoded("cls", "int64", (), decode)
    with pytest.raises(kind, match=text):
        for _ in Loader(ds, columns=[column], batch_size=10, max_bad=1_000_000, threads=threads):
            pass
    with pytest.raises(kind) as caught:
        one_batch(ds, column, threads=threads)
    said = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "'cls'" in said and "sample 0 ('000000') in shard" in said
    few = Loader(ds[:20], columns=[column], batch_size=10, max_bad=1_000_000, threads=threads)
    with pytest.raises(kind):
        for _ in few:
            pass
        few.prove()


@THREADS
def test_the_end_of_an_iterator_in_a_function_does_not_end_the_loop(
    ds: shardwise.Dataset, threads: int
) -> None:
    column = columns.function("f", "int64", (), lambda sample, random: next(iter(())))
    loader = Loader(ds, columns=[column], batch_size=10, threads=threads)
    with pytest.raises(RuntimeError, match="^a function raised StopIteration") as caught:
        for _ in loader:
            pass
    assert isinstance(caught.value.__cause__, StopIteration)
    assert "column 'f', sample " in caught.value.__notes__[0]


def test_an_exception_without_a_text_is_one(ds: shardwise.Dataset) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fails(*_: Any) -> int:
        raise Mute

    with pytest.raises(Mute):
        one_batch(ds, columns.function("f", "int64", (), fails))


@pytest.mark.parametrize("threads", [0, 2])
def test_threads_keep_what_is_local_to_them(ds: shardwise.Dataset, threads: int) -> None:
    local = threading.local()
    made: list[object] = []

    def make(sample: shardwise.Sample, random: int) -> int:
        if not hasattr(local, "decoder"):
            local.decoder = object()
            made.append(local.decoder)
        return sample.index

    loader = Loader(ds, columns=[columns.function("f", "int64", (), make)], threads=threads)
    for batch in loader:
        assert batch["f"].tolist() == batch.samples.tolist()
    assert 1 <= len(made) <= max(threads, 1)
    loader.close()


def test_masks_and_nulls_of_rows_are_refused(ds: shardwise.Dataset) -> None:
    masked = np.ma.masked_array(np.ones(2, np.float32), [True, False])
    rows = [masked, masked[:1], np.ma.masked_array(np.ones(2, np.float32))]
    for package, make in (("pandas", "Series"), ("polars", "Series"), ("pyarrow", "array")):
        try:
            module = __import__(package)
        except ImportError:
            continue
        options = {"dtype": "Float32"} if package == "pandas" else {}
        rows.append(getattr(module, make)([1.5, None], **options))
    for row in rows:
        with pytest.raises(errors.InvalidArgument, match="a mask or nulls"):
            one_batch(ds, columns.function("f", "float32", None, lambda s, r: row))
        with pytest.raises(errors.InvalidArgument, match="a mask or nulls"):
            one_batch(ds, columns.decoded("bin", "float32", None, lambda s, r: row))

    class Own(np.ndarray):
        pass

    row = np.ones(2, np.float32).view(Own)
    assert one_batch(ds, columns.function("f", "float32", (2,), lambda s, r: row))["f"].all()


def test_numbers_have_to_fit(ds: shardwise.Dataset) -> None:
    for dtype, number in (("int64", 1 << 63), ("uint8", 256)):
        with pytest.raises(OverflowError):
            one_batch(ds, columns.function("f", dtype, (), lambda s, r: number))
    batch = one_batch(
        ds,
        columns.function("least", "int64", (), lambda s, r: -(1 << 63)),
        columns.function("real", "float64", (), lambda s, r: 0.1),
        columns.function("whole", "float32", (), lambda s, r: s.index),
        columns.function("truth", "bool", (), lambda s, r: s.index % 2 == 1),
    )
    assert (batch["least"] == -(1 << 63)).all() and (batch["real"] == 0.1).all()
    assert batch["whole"].tolist() == list(range(32))
    assert batch["truth"].tolist() == [False, True] * 16


def test_a_function_may_not_use_the_loader(ds: shardwise.Dataset) -> None:
    def again(sample: shardwise.Sample, random: int) -> int:
        loader.next()
        return 0

    loader = Loader(
        ds, columns=[columns.function("f", "int64", (), again)], batch_size=2, threads=0
    )
    with pytest.raises(errors.Unsupported, match="the function of a column"):
        loader.next()


def test_arrays_outlive_batch_and_loader_and_may_be_written_to(ds: shardwise.Dataset) -> None:
    def arrays() -> list[tuple[Any, Any, list[int]]]:
        loader = Loader(ds, columns=[columns.integer("cls"), columns.bytes("bin")], batch_size=10)
        return [(batch["cls"], batch["bin"], batch.samples.tolist()) for batch in loader]

    kept = arrays()
    gc.collect()
    for _ in range(3):
        arrays()  # would reuse the memory if it were free
    for labels, ragged, numbers in kept:
        assert labels.tolist() == numbers
        assert [bytes(row) for row in ragged] == [bytes([n % 256]) * (n % 50 + 1) for n in numbers]
        assert labels.flags.writeable and labels.flags.c_contiguous and not labels.flags.owndata
        labels[:] = -1
        assert (labels == -1).all()


def test_two_arrays_of_a_column_share_its_memory(ds: shardwise.Dataset) -> None:
    batch = one_batch(ds, columns.integer("cls"))
    batch["cls"][0] = 77
    assert batch["cls"][0] == 77
    assert batch["cls"].ctypes.data == batch["cls"].ctypes.data
    assert batch["cls"].ctypes.data % 64 == 0


def test_memory_goes_back_to_the_loader(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.integer("cls")], batch_size=10, threads=0)
    places = set()
    for _ in range(20):
        for batch in loader:
            places.add(batch["cls"].ctypes.data)
    assert len(places) <= 4


def test_batches_without_rows(ds: shardwise.Dataset) -> None:
    rank = shardwise.ranks.Reducer(102, 103, lambda words: words)
    loader = Loader(
        ds[:5], columns=[columns.integer("cls"), columns.bytes("bin")], ranks=rank, batch_size=1
    )
    batch = loader.next()
    assert batch is not None and len(batch) == 0
    assert batch["cls"].shape == (0,) and len(batch["bin"]) == 0 and batch.text("bin") == []
    assert batch.samples.tolist() == []


def test_memory_is_flat_over_twenty_epochs(ds: shardwise.Dataset) -> None:
    def make(sample: shardwise.Sample, random: int) -> np.ndarray[Any, Any]:
        return np.full(2000, sample.index, np.int32)

    loader = Loader(
        ds,
        columns=[
            columns.function("f", "int32", (2000,), make),
            columns.bytes("bin"),
            columns.decoded("cls", "uint8", None, lambda d, r: d),
        ],
        batch_size=10,
        threads=2,
    )

    def epochs(number: int) -> None:
        for _ in range(number):
            for batch in loader:
                batch["f"], batch["bin"], batch.text("bin")

    epochs(5)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    epochs(20)  # 16 MB of batches
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 200_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 12_000  # KiB


@pytest.mark.parametrize("threads", [0, 2])
def test_cycles_are_collected(ds: shardwise.Dataset, threads: int) -> None:
    class Holder:
        loader: Loader

    def make() -> weakref.ref[Holder]:
        holder = Holder()

        def function(sample: shardwise.Sample, random: int) -> int:
            return id(holder) % 100

        holder.loader = Loader(
            ds,
            columns=[columns.function("f", "int64", (), function)],
            batch_size=2,
            threads=threads,
        )
        holder.loader.next()  # a thread runs the function while the object is collected
        return weakref.ref(holder)

    for _ in range(5):
        left = make()
        gc.collect()
        assert left() is None


def test_dropping_a_loader_waits_for_functions_that_run(ds: shardwise.Dataset) -> None:
    running = threading.Event()
    go = threading.Event()
    done: list[int] = []

    def slow(sample: shardwise.Sample, random: int) -> int:
        running.set()
        go.wait()
        done.append(sample.index)
        return 0

    loader = Loader(ds, columns=[columns.function("f", "int64", (), slow)], batch_size=2, threads=1)
    loader.start()
    running.wait()
    threading.Timer(0.05, go.set).start()
    del loader  # must release the GIL, which the function needs to end
    assert done


def test_memory_of_a_function(ds: shardwise.Dataset) -> None:
    class Block:
        def __init__(self, num_bytes: int) -> None:
            self.array = np.zeros(num_bytes + 64, np.uint8)
            alive.add(self)

        def data_ptr(self) -> int:
            return -(-self.array.ctypes.data // 64) * 64

    alive: weakref.WeakSet[Block] = weakref.WeakSet()
    loader = Loader(ds, columns=[columns.integer("cls")], batch_size=10, memory=Block, threads=2)
    kept = [batch["cls"] for batch in loader]
    places = [block.data_ptr() for block in alive]
    assert {array.ctypes.data for array in kept} <= set(places) and len(alive) >= 11
    del loader
    gc.collect()
    assert [array.tolist() for array in kept] and len(alive) == 11
    del kept
    gc.collect()
    assert len(alive) == 0


def test_memory_that_cannot_be_had_is_raised(ds: shardwise.Dataset) -> None:
    def none(num_bytes: int) -> Any:
        raise MemoryError(f"no {num_bytes} bytes")

    class Crooked:
        def __init__(self, num_bytes: int) -> None:
            pass

        def data_ptr(self) -> int:
            return 4097

    with pytest.raises(MemoryError, match="no 4096 bytes"):
        one_batch(ds, columns.integer("cls"), memory=none)
    with pytest.raises(errors.InvalidArgument, match="not aligned"):
        one_batch(ds, columns.integer("cls"), memory=Crooked)


def test_numbers_are_not_cut_to_whole_ones(ds: shardwise.Dataset) -> None:
    for shape, given in (((), 1.5), ((), 2.0), ((2,), [1, 2.5]), (None, [0.5])):
        column = columns.function("f", "int32", shape, lambda s, r, given=given: given)
        with pytest.raises(errors.InvalidArgument, match=": floats instead of int32; "):
            one_batch(ds, column)
    empty = one_batch(ds, columns.function("f", "int32", None, lambda s, r: []), batch_size=2)
    assert [row.size for row in empty["f"]] == [0, 0]
    with pytest.raises(errors.InvalidArgument, match="did not return bfloat16: float; "):
        one_batch(ds, columns.function("f", "bfloat16", (), lambda s, r: 1.0))


def test_memory_that_is_too_small_or_elsewhere_is_refused(ds: shardwise.Dataset) -> None:
    class Block:
        def __init__(self, num_bytes: int, device: str = "cpu", address: int | None = None) -> None:
            self.bytes = np.zeros(num_bytes + 64, np.uint8)
            self.nbytes = num_bytes
            self.device = types.SimpleNamespace(type=device)  # like torch.Tensor's
            self.address = address

        def data_ptr(self) -> int:
            here = int(self.bytes.ctypes.data + 63) // 64 * 64
            return here if self.address is None else self.address

    column = columns.integer("cls")
    assert one_batch(ds, column, memory=Block)["cls"].size == 32
    with pytest.raises(errors.InvalidArgument, match="too small: 4095 bytes instead of 4096; "):
        one_batch(ds, column, memory=lambda size: Block(size - 1))
    with pytest.raises(errors.InvalidArgument, match="on the device meta; "):
        one_batch(ds, column, memory=lambda size: Block(size, device="meta"))
    with pytest.raises(errors.InvalidArgument, match="has no address; "):
        one_batch(ds, column, memory=lambda size: Block(size, address=0))


def test_locked_functions_run_one_at_a_time(ds: shardwise.Dataset) -> None:
    inside: list[int] = []
    most = [0]

    def make(sample: shardwise.Sample, random: int) -> int:
        inside.append(sample.index)
        for _ in range(20):
            time.sleep(0)  # releases the GIL, as a transform may
            most[0] = max(most[0], len(inside))
        inside.remove(sample.index)
        return sample.index

    def decode(data: bytes, random: int) -> int:
        made = make(ds[data[0]], random)
        return made * 0 + data[0]

    made = [
        columns.function("one", "int64", (), make, lock=True),
        columns.function("other", "int64", (), make, lock=True),
        columns.decoded("bin", "int64", (), decode, lock=True),
    ]
    loader = Loader(ds, columns=made, order=Order("sequential"), batch_size=10, threads=4)
    assert [int(i) for batch in loader for i in batch["one"]] == list(range(len(ds)))
    assert most == [1]


def test_a_shared_generator_gives_each_sample_its_numbers_under_the_lock(
    ds: shardwise.Dataset,
) -> None:
    shared = [0]  # like torch's global generator: draws depend on the last seed

    def draw() -> int:
        time.sleep(0)  # releases the GIL, as a transform may
        shared[0] = (shared[0] * 6364136223846793005 + 1442695040888963407) % 2**64
        return shared[0] >> 33

    def make(sample: shardwise.Sample, random: int) -> list[int]:
        shared[0] = random % 2**64
        return [draw() for _ in range(8)]

    def numbers(threads: int) -> list[Any]:
        made = columns.function("numbers", "int64", (8,), make, lock=True)
        loader = Loader(ds, columns=[made], order=Order(seed=3), batch_size=10, threads=threads)
        return [batch["numbers"].tolist() for batch in loader]

    assert numbers(4) == numbers(0)


def test_a_lock_is_true_or_false(ds: shardwise.Dataset) -> None:
    with pytest.raises(errors.InvalidArgument, match="give True or False"):
        columns.function("x", "int64", (), lambda s, r: 0, lock=1)  # type: ignore[arg-type]
