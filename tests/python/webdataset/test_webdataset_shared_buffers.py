"""Workers send large arrays in shared buffers. The arrays equal those made without workers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, write_shards
from webdataset_support import own_folders  # noqa: F401

import shardwise.webdataset as wds

torch = needs("torch")
import numpy  # noqa: E402

from shardwise.webdataset import shared_buffers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:'pin_memory'")

NUMPY_TYPES = ["uint8", "int32", "float16", "complex128", "datetime64[s]", "S7", "i4,f8"]
TORCH_TYPES = [torch.uint8, torch.bool, torch.bfloat16, torch.float64, torch.complex64]


class Made:
    """Makes items of arrays of many types and sizes, which depend only on the sample's number."""

    def __init__(self, seed: int, largest: int = 1 << 17) -> None:
        self.seed, self.largest = seed, largest

    def array(self, rng: random.Random) -> Any:
        data = rng.randbytes(16 * rng.randrange(1, self.largest // 16))
        if rng.random() < 0.5:
            kind = numpy.dtype(rng.choice(NUMPY_TYPES))
            count = len(data) // kind.itemsize
            return numpy.frombuffer(data, kind, count).copy()
        kind = rng.choice(TORCH_TYPES)
        made = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return (made % 2).view(torch.bool) if kind == torch.bool else made.view(kind).view(2, -1)

    def __call__(self, sample: Any) -> Any:
        rng = random.Random(f"{self.seed} {sample['__key__']}")
        same = self.array(rng)
        item = [self.array(rng), {"x": (same, [self.array(rng)]), "same": same}, sample["__key__"]]
        return tuple(item) if rng.random() < 0.5 else item


def as_it_is(item: Any) -> Any:
    return item


def loader(folder: Path, batch: int, made: Any, workers: int, **options: Any) -> wds.WebLoader:
    url = str(folder / "shards" / "train-{000000..000001}.tar")
    dataset = wds.WebDataset(url, shardshuffle=100).shuffle(100).map(made).listed(batch)
    return wds.WebLoader(
        dataset, batch_size=None, num_workers=workers, collate_fn=as_it_is, **options
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shards of 15 samples; arrays of 16 KiB are large already."""
    monkeypatch.setattr(shared_buffers, "MIN_BYTES", 1 << 14)
    write_shards(tmp_path / "shards", [9, 6])
    return tmp_path


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The slots that were received, and not those of torch."""
    slots: list[int] = []
    receive = shared_buffers.SharedBuffers.receive

    def counted(self: Any, worker: int, slot: int, data: bytes) -> Any:
        slots.append(slot)
        return receive(self, worker, slot, data)

    monkeypatch.setattr(shared_buffers.SharedBuffers, "receive", counted)
    return slots


def assert_same(some: Any, other: Any) -> None:
    assert type(some) is type(other)
    if isinstance(some, (list, tuple)):
        assert len(some) == len(other)
        for one, two in zip(some, other, strict=True):
            assert_same(one, two)
    elif isinstance(some, dict):
        assert_same(list(some.items()), list(other.items()))
    elif isinstance(some, torch.Tensor):
        assert (some.dtype, some.shape) == (other.dtype, other.shape)
        assert shared_buffers._bytes_of(some).tobytes() == shared_buffers._bytes_of(other).tobytes()
    elif isinstance(some, numpy.ndarray):
        assert (some.dtype, some.shape) == (other.dtype, other.shape)
        assert some.tobytes() == other.tobytes()
        assert some.flags.writeable
    else:
        assert some == other


@pytest.mark.parametrize("seed", range(4))
def test_batches_equal_those_without_workers_wherever_loops_stop(
    folder: Path, received: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    batch, workers = rng.randrange(1, 5), rng.randrange(1, 4)
    made = Made(seed)
    options = {
        "persistent_workers": rng.random() < 0.5,
        "prefetch_factor": rng.randrange(1, 4),
        "pin_memory": rng.random() < 0.5,
    }
    ours, plain = loader(folder, batch, made, workers, **options), loader(folder, batch, made, 0)
    kept = []
    for number in range(2):
        end = None if number == 1 else rng.randrange(1, 5)
        ours.set_epoch(number)
        plain.set_epoch(number)
        kept += list(zip(islice(ours, end), islice(plain, end), strict=True))
    for some, other in kept:  # all are compared only now: no later batch overwrote them
        assert_same(some, other)
    assert received


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_workers_of_any_start_send_by_buffers(
    folder: Path, received: list[int], start: str
) -> None:
    made = large_arrays
    ours = loader(folder, 2, made, 2, multiprocessing_context=start, persistent_workers=True)
    for number in range(2):
        plain = loader(folder, 2, made, 0)
        plain.set_epoch(number)
        for some, other in zip(ours, plain, strict=True):
            assert_same(some, other)
    assert received


def test_loops_that_run_at_once_have_buffers_of_their_own(folder: Path) -> None:
    makers = [Made(1), Made(2)]
    loaders = [loader(folder, 2, made, 2) for made in makers]
    loops = [iter(one) for one in [*loaders, loader(folder, 2, makers[0], 1)]]
    plain = [list(loader(folder, 2, made, 0)) for made in [*makers, makers[0]]]
    for batches in zip(*plain, strict=True):
        assert_same([next(loop) for loop in loops], list(batches))


def test_arrays_stay_one_object_and_are_private(folder: Path, received: list[int]) -> None:
    for batch in loader(folder, 1, Made(3), 1):
        _, fields, _ = batch[0]
        assert fields["x"][0] is fields["same"]
        if isinstance(fields["same"], torch.Tensor) and fields["same"].nbytes >= 1 << 14:
            assert not fields["same"].is_shared()
    assert set(received) <= {0, 1, 2}


def large_arrays(sample: Any) -> Any:
    number = int(sample["__key__"])
    return numpy.full((1 << 17, 2), number), torch.full((1 << 18,), number), [number]


def large_tensor(sample: Any) -> Any:
    return torch.full((1 << 12,), int(sample["__key__"]))


@pytest.mark.parametrize("without", ["memory", "slots", "semaphores"])
def test_without_room_the_batches_come_as_by_torch(
    folder: Path, received: list[int], monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    if without == "memory":
        monkeypatch.setattr(shared_buffers, "_SPARE", 1 << 60)
    elif without == "slots":
        receive = shared_buffers.SharedBuffers.receive

        def frees_none(self: Any, worker: int, slot: int, data: bytes) -> Any:
            self._free = [[multiprocessing.Semaphore(0) for _ in one] for one in self._free]
            return receive(self, worker, slot, data)

        monkeypatch.setattr(shared_buffers.SharedBuffers, "receive", frees_none)
    else:
        monkeypatch.setattr(torch.multiprocessing, "Semaphore", no_semaphore)
    for some, other in zip(
        loader(folder, 1, large_tensor, 2), loader(folder, 1, large_tensor, 0), strict=True
    ):
        assert_same(some, other)
    assert len(received) == (6 if without == "slots" else 0)


def no_semaphore(*_: Any, **__: Any) -> None:
    raise OSError("none is left")


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("not to be sent")


def test_an_item_that_does_not_pickle_leaves_its_slot_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_buffers, "get_worker_info", lambda: type("Info", (), {"id": 0}))
    buffers = shared_buffers.SharedBuffers(torch.multiprocessing, 1, 1)
    array = numpy.arange(1 << 18)
    for _ in range(2):
        with pytest.raises(ValueError, match="not to be sent"):
            pickle.dumps(buffers.packed((array, Unpicklable())))
    function, args = buffers.packed((array, "text")).__reduce__()
    assert buffers.packed((array, "text")).__reduce__()[1][0][1] == "text"  # the slot is taken
    assert_same(function(*args), (array, "text"))
    function, args = buffers.packed([array]).__reduce__()
    assert_same(function(*args), [array])


def test_a_killed_worker_is_an_error_and_the_next_loop_begins_anew(folder: Path) -> None:
    made = Made(4)
    batches = loader(folder, 1, made, 2)
    loop = iter(batches)
    next(loop)
    for worker in children():
        os.kill(worker, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly|killed"):
        list(loop)
    batches.set_epoch(5)
    plain = loader(folder, 1, made, 0)
    plain.set_epoch(5)
    for some, other in zip(batches, plain, strict=True):
        assert_same(some, other)


def children() -> list[int]:
    return [one.pid for one in multiprocessing.active_children() if one.pid]
