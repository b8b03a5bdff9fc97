"""Batches as tensors, and ranks of torch.distributed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import needs

import shardwise
from shardwise import Loader, Order, columns

torch = needs("torch")


def test_tensors_lie_over_the_memory_of_a_batch(ds: shardwise.Dataset) -> None:
    def half(sample: shardwise.Sample, random: int) -> bytes:
        return bytes(
            torch.tensor([sample.index, 1], dtype=torch.bfloat16).view(torch.uint8).numpy()
        )

    loader = Loader(
        ds,
        columns=[
            columns.integer("cls"),
            columns.bytes("bin"),
            columns.function("half", torch.bfloat16, (2,), half),
            columns.function(
                "t", torch.float32, (3,), lambda s, r: torch.full((3,), float(s.index))
            ),
        ],
        order=Order("sequential"),
        batch_size=10,
    )
    batch = loader.next()
    assert batch is not None
    tensors = batch.tensors()
    assert list(tensors) == ["cls", "bin", "half", "t"]
    assert tensors["cls"].tolist() == list(range(10))
    assert tensors["cls"].data_ptr() == batch["cls"].ctypes.data == batch.torch("cls").data_ptr()
    assert tensors["half"].dtype == torch.bfloat16
    assert tensors["half"].tolist() == [[float(i), 1.0] for i in range(10)]
    assert tensors["t"].tolist() == [[float(i)] * 3 for i in range(10)]
    assert (
        bytes(tensors["bin"][3].numpy()) == b"\3" * 4
        and tensors["bin"].offsets.dtype == torch.int64
    )
    del loader, batch
    tensors["cls"][0] = 5
    assert tensors["cls"].tolist() == [5, *range(1, 10)]


def test_torch_allocates_the_memory(ds: shardwise.Dataset) -> None:
    loader = Loader(
        ds, columns=[columns.integer("cls")], batch_size=10, memory=shardwise.torch_memory()
    )
    kept = [batch.torch("cls") for batch in loader]
    del loader
    assert sorted(int(x) for labels in kept for x in labels) == list(range(103))


def test_pinned_memory(ds: shardwise.Dataset) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU; skipped because there is none")
    loader = Loader(
        ds, columns=[columns.integer("cls")], memory=shardwise.torch_memory(pinned=True)
    )
    batch = loader.next()
    assert batch is not None and batch.torch("cls").is_pinned()
    assert (batch.torch("cls").cuda(non_blocking=True).cpu().numpy() == batch["cls"]).all()


RANKS = """
import sys
import torch.distributed as dist
import shardwise
from shardwise import Loader, Order, columns, ranks
rank, world = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=world)
group = ranks.torch_ranks()
assert (group.local_rank, group.local_world_size) == (rank, world), group
ds = shardwise.open(sys.argv[4])
given = {"ranks": group} if sys.argv[5] == "given" else {}  # else the group is found
loader = Loader(ds, columns=[columns.key()], order=Order(seed=3), batch_size=8, **given)
assert len(loader) == 7, "103 samples, in steps of 2 * 8"
batches = iter(loader)
for _ in range(2):
    next(batches)
state = loader.state_dict()
loader.load_state_dict(state)
for batch in loader:
    pass
print(loader.prove())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["given", "found"])
def test_ranks_of_torch_distributed(index: Path, tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", RANKS]
    store = str(tmp_path / "store")
    ranks = [
        subprocess.Popen(
            [*command, str(rank), "2", store, str(index), how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        out, err = rank.communicate()
        assert rank.returncode == 0, err
        assert out == "epoch 0: 103 samples, each exactly once: proven\n"


LATE = """
import sys
import torch.distributed as dist
import shardwise
from shardwise import Loader, columns
rank, world = int(sys.argv[1]), int(sys.argv[2])
ds = shardwise.open(sys.argv[4])
early, alone = (
    Loader(ds, columns=[columns.key()], batch_size=8, **given) for given in ({}, {"ranks": None})
)
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=world)
for take in (early.next, lambda: next(iter(early)), lambda: next(iter(next(early.epochs())))):
    try:
        take()
    except shardwise.errors.InvalidArgument as error:
        print(error)
print(sum(map(len, alone)))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("world", [1, 2])
def test_a_loader_made_before_the_process_group_is_refused(
    index: Path, tmp_path: Path, world: int
) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", LATE, str(rank), str(world), str(tmp_path / "store"), str(index)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    for number, rank in enumerate(ranks):
        out, err = rank.communicate()
        assert rank.returncode == 0, err
        text = f"process is rank {number} of 2;"
        assert out.count(text) == (3 if world == 2 else 0)
        assert out.endswith("103\n")


class Batches(torch.utils.data.IterableDataset[list[int]]):
    """A loader in the form in which users put it into a DataLoader."""

    def __init__(self, ds: shardwise.Dataset, **options: object) -> None:
        self.loader = Loader(ds, columns=[columns.integer("cls")], threads=0, **options)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.loader:
            yield batch["cls"].tolist()


def test_in_several_workers_a_loader_is_refused(ds: shardwise.Dataset) -> None:
    def given(workers: int, **options: object) -> list[int]:
        loader = torch.utils.data.DataLoader(
            Batches(ds, **options), batch_size=None, num_workers=workers
        )
        return sorted(number for numbers in loader for number in numbers)

    assert given(0) == given(1) == list(range(103))
    with pytest.raises(Exception, match="worker"):
        given(2)
    assert len(given(2, ranks=None)) == 206


def test_without_a_process_group_ranks_say_what_to_do() -> None:
    with pytest.raises(shardwise.errors.InvalidArgument, match="init_process_group"):
        shardwise.ranks.torch_ranks()


def test_a_torch_dtype_is_a_name(ds: shardwise.Dataset) -> None:
    assert (
        columns.tokens("bin", torch.uint16).dtype
        == "uint16"
        == columns.tokens("b", np.uint16).dtype
    )
