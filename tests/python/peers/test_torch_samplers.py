"""shardwise.torch: samplers, batches, tokens, and torch's DataLoader over them."""

from __future__ import annotations

import inspect
import itertools
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, write_shard
from peer_runs import make_index

import shardwise
from shardwise.errors import BadField, Distributed, InvalidArgument, Mismatch, OutOfRange

torch = needs("torch")

from torch.utils.data import DataLoader  # noqa: E402

import shardwise.torch as st  # noqa: E402

_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> shardwise.Dataset:
    return shardwise.open(make_index(tmp_path_factory.mktemp("data")))


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("chunked", st.ChunkedSampler),
        ("sharded", st.ShardedSampler),
        ("sequential", st.SequentialSampler),
        ("resampled", st.ResampledSampler),
    ],
)
def test_a_sampler_has_the_options_of_its_order(kind: str, made: Any) -> None:
    options = shardwise.Order(kind).options | {"skip": ()}
    del options["kind"]
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(made).parameters.items()
        if name not in ("data", "ranks")
    }
    assert given == {name: options[name] for name in given}
    if kind in ("chunked", "sharded"):  # some options are of no use for the other orders
        assert set(given) == set(options)
    kinds_own = set(options) - set(shardwise.Order("sequential").options)
    assert kinds_own <= set(given)


def proven(sampler: st.DistributedSampler, delivered: Iterator[int] | list[int]) -> str:
    audit = shardwise.Audit(sampler.core)
    audit.add(delivered)
    return audit.prove(sampler.core)


# Samplers.


@pytest.mark.parametrize(
    ("make", "kind", "options"),
    [
        (st.DistributedSampler, "chunked", {}),
        (st.DistributedChunkedSampler, "chunked", {"seed": 5, "chunk_size": 100, "window": 3}),
        (st.ChunkedSampler, "chunked", {"window": 2, "tail": "drop"}),
        (st.ShardedSampler, "sharded", {"seed": 2}),
        (st.SequentialSampler, "sequential", {}),
        (st.ResampledSampler, "resampled", {"seed": 5, "epoch_size": 300}),
    ],
)
def test_each_rank_has_what_the_core_gives_it(
    train: shardwise.Dataset, make: Any, kind: str, options: dict[str, Any]
) -> None:
    for rank, epoch in itertools.product(range(7), (0, 3)):
        ours = make(train, rank=rank, world_size=7, **options)
        core = shardwise.Sampler(train, shardwise.Order(kind, **options), rank=rank, world_size=7)
        ours.set_epoch(epoch)
        core.set_epoch(epoch)
        assert list(ours) == list(core) and len(ours) == len(core)
        assert ours[17] == core[17]
        assert isinstance(ours, torch.utils.data.DistributedSampler)


def test_it_has_what_others_look_for(train: shardwise.Dataset) -> None:
    sampler = st.ShardedSampler(train, seed=5, rank=1, world_size=2)
    assert (sampler.rank, sampler.num_replicas, sampler.world_size) == (1, 2, 2)
    assert (sampler.num_samples, sampler.total_size, sampler.seed) == (1000, 2001, 5)
    assert (sampler.shuffle, sampler.drop_last, sampler.epoch) == (True, False, 0)
    sampler.epoch = 4
    assert sampler.epoch == 4
    text = repr(sampler)
    assert "ShardedSampler: shardwise.Order(kind='sharded', seed=5" in text
    assert text.endswith("epoch 4, rank 1 of 2>")
    with pytest.raises(OutOfRange):
        sampler[1000]


def test_what_is_wrong_is_said_at_once(train: shardwise.Dataset) -> None:
    with pytest.raises(TypeError, match="num_shards"):
        st.ShardedSampler(train, num_shards=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument):
        st.DistributedChunkedSampler(train, rank=2, world_size=2)
    with pytest.raises(InvalidArgument, match="shards"):
        st.ShardedSampler(2001)  # a number of samples has no shards
    with pytest.raises(InvalidArgument, match="epoch=-1"):
        st.SequentialSampler(train).set_epoch(-1)


def test_a_second_pass_is_the_same_epoch_with_one_warning(train: shardwise.Dataset) -> None:
    sampler = st.DistributedChunkedSampler(train, rank=0, world_size=1)
    first = list(sampler)
    with pytest.warns(
        UserWarning, match=r"epoch 0 .*set_epoch"
    ):
        assert list(sampler) == first
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(sampler) == first
        sampler.set_epoch(1)
        assert list(sampler) != first


def test_passes_that_are_meant_give_no_warning(train: shardwise.Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = st.DistributedChunkedSampler(train, rank=0, world_size=1)
        list(itertools.islice(sampler, 5))  # an incomplete pass
        list(sampler)
        sampler.set_epoch(0)  # repeats the epoch on request
        list(sampler)
        evaluation = st.SequentialSampler(train, rank=0, world_size=1)
        assert list(evaluation) == list(evaluation)


def test_a_fresh_iterator_begins_in_the_epoch_that_is_set_later(train: shardwise.Dataset) -> None:
    sampler = st.DistributedChunkedSampler(train, seed=1, rank=0, world_size=2)
    batches = st.BatchSampler(sampler, 64)
    token = batches.token(3)
    fresh_lists = iter(batches)
    sampler.set_epoch(2)
    expected = list(sampler.core)
    assert [i for batch in fresh_lists for i in batch] == expected
    sampler.set_epoch(0)
    fresh = iter(sampler)
    sampler.resume(token)
    rest = list(fresh)
    assert rest == list(sampler.core) != expected
    sampler.set_epoch(1)
    sampler.resume(token)
    begun = iter(sampler)
    before = [next(begun)]
    sampler.set_epoch(5)
    assert before + list(begun) == rest


def test_the_warning_comes_through_a_data_loader(train: shardwise.Dataset) -> None:
    batches = st.BatchSampler(st.ShardedSampler(train), 100, drop_last=True)
    loader: Any = DataLoader(range(2001), batch_sampler=batches)  # type: ignore[arg-type]
    assert len(list(loader)) == 20
    with pytest.warns(UserWarning, match="call set_epoch"):
        assert len(list(loader)) == 20


# Which rank.


def test_the_ranks_come_from_the_environment(
    train: shardwise.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = st.SequentialSampler(train)
    given = st.SequentialSampler(train, rank=0, world_size=1)
    assert (len(sampler), sampler.world_size) == (2001, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (len(sampler), sampler.rank, next(iter(sampler))) == (500, 2, 2)
    assert (len(given), given.rank) == (2001, 0)  # rank=0 is not taken for a missing rank
    assert st.SequentialSampler(train, rank=0).rank == 0
    monkeypatch.delenv("RANK")
    with pytest.raises(Distributed, match="torchrun are set, .*not RANK"):
        len(sampler)
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    assert (sampler.rank, sampler.world_size) == (1, 3)


def test_torch_distributed_goes_before_the_environment(
    train: shardwise.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = st.SequentialSampler(train)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        assert (sampler.rank, sampler.world_size, len(sampler)) == (0, 1, 2001)
        audit = shardwise.Audit(sampler.core)
        audit.add(list(sampler))
        assert st.prove(sampler, audit) == "epoch 0: 2,001 samples, each exactly once: proven"
    finally:
        torch.distributed.destroy_process_group()


# Batches.


def test_even_batches_that_cannot_be_are_an_error() -> None:
    def batches(samples: int, size: int, **options: Any) -> st.BatchSampler:
        sampler = st.SequentialSampler(samples, rank=1, world_size=2)
        return st.BatchSampler(sampler, size, **options)

    with pytest.raises(InvalidArgument, match="1001 samples, .* 1000, .*tail=.*even=False"):
        len(batches(2001, 1))
    with pytest.raises(InvalidArgument, match="1 samples, another rank 0, in batches of 4"):
        iter(batches(1, 4))
    assert len(batches(2001, 1, even=False)) == 1000
    assert len(batches(1, 4, even=False)) == 0
    assert [len(batches(19, 10, drop_last=last)) for last in (False, True)] == [1, 0]


def test_a_batch_sampler_takes_a_sampler_of_this_module_only() -> None:
    foreign: Any = torch.utils.data.SequentialSampler(range(9))
    with pytest.raises(InvalidArgument, match="not a SequentialSampler"):
        st.BatchSampler(foreign, 2)
    with pytest.raises(InvalidArgument, match="sampler has 4, .*BatchSampler 2"):
        st.BatchSampler(st.SequentialSampler(9, batch_size=4), 2)


def test_uneven_batches_of_torch_are_an_error() -> None:
    numbers: Any = range(2001)
    for rank in range(2):
        sampler = st.SequentialSampler(2001, rank=rank, world_size=2)
        loader: Any = DataLoader(numbers, batch_size=10, sampler=sampler)
        with pytest.raises(
            InvalidArgument, match="101 batches of 10, another 1"
        ):
            next(iter(loader))
    sampler = st.SequentialSampler(2001, rank=1, world_size=2, allow_uneven=True)
    loader = DataLoader(numbers, batch_size=10, sampler=sampler)
    assert len(list(loader)) == 100


# Tokens and states.


def test_the_same_epoch_keeps_the_place_of_its_token() -> None:
    sampler = st.SequentialSampler(100, rank=0, world_size=1)
    for again in (False, True):
        sampler.resume(sampler.token(7, batch_size=10))
        assert list(sampler) == list(range(70, 100))
        with pytest.warns(UserWarning, match=r"the rest after resume"):
            if again:
                sampler.set_epoch(0)
            assert list(sampler) == list(range(70, 100))
        sampler.set_epoch(1)
        sampler.set_epoch(0)
        assert len(list(sampler)) == 100
        sampler = st.SequentialSampler(100, rank=0, world_size=1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("in_batches", [False, True])
def test_reading_ahead_to_the_end_keeps_the_place_of_a_token(
    train: shardwise.Dataset, workers: int, in_batches: bool
) -> None:
    sampler = st.ChunkedSampler(train, seed=3, rank=0, world_size=1, batch_size=20)
    batches = st.BatchSampler(sampler, 20)
    how: Any = {"batch_sampler": batches} if in_batches else {"sampler": sampler, "batch_size": 20}
    loader: Any = DataLoader(train, num_workers=workers, **how)  # type: ignore[arg-type]
    expected = list(sampler)
    sampler.resume(batches.token(97))  # 4 batches are left; the workers prefetch all of them
    ahead = iter(loader)
    sampler.set_epoch(sampler.epoch)  # as Lightning does after iter()
    assert next(ahead)["__index__"].tolist() == expected[1940:1960]
    rest = st.ChunkedSampler(train, seed=3, rank=0, world_size=1)
    rest.resume(batches.token(1))
    assert list(rest) == expected[1960:]
    sampler.set_epoch(sampler.epoch)  # the iterator above only peeked
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with workers, this looks like a second pass
        assert sum((b["__index__"].tolist() for b in loader), []) == expected[1940:]


def test_a_mixture_is_drawn_from_by_its_weights(train: shardwise.Dataset) -> None:
    mixed = shardwise.mix([train[:1800], train[1800:]], [0.1, 0.9])
    sampler = st.DistributedChunkedSampler(mixed, seed=3, rank=0, world_size=1)
    drawn: list[int] = []
    audit = shardwise.Audit(sampler.core)
    loader: Any = DataLoader(
        mixed,  # type: ignore[arg-type]
        batch_sampler=st.BatchSampler(sampler, 64),
        num_workers=2,
    )
    for batch in loader:
        drawn += batch["__index__"].tolist()
        audit.add(batch["__index__"])
    assert drawn == list(sampler.core)
    assert 0.05 < sum(n < 1800 for n in drawn) / len(drawn) < 0.15
    assert st.prove(sampler, audit).endswith("drawn from the mixture, as ordered: proven")
    token = sampler.token(3, batch_size=64)
    resumed = st.DistributedChunkedSampler(mixed, seed=3, rank=0, world_size=1)
    resumed.resume(token)
    assert list(resumed) == drawn[192:]


class Around:
    """A user's data set that wraps another one."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> Any:
        return self.data[number]


def test_samplers_that_know_no_weights_are_refused(train: shardwise.Dataset) -> None:
    mixed: Any = shardwise.mix([train[:1800], train[1800:]], [0.1, 0.9])
    uses: list[Any] = [
        lambda data: DataLoader(data, shuffle=True),
        lambda data: list(DataLoader(data)),
        lambda data: torch.utils.data.DistributedSampler(data, 2, 0),
    ]
    for use, data in itertools.product(uses, (mixed, Around(mixed), Around(Around(mixed)))):
        with pytest.raises(InvalidArgument, match="Sampler ignores the weights"):
            use(data)
    part = torch.utils.data.Subset(mixed, range(100))
    both: Any = torch.utils.data.ConcatDataset([mixed, train])  # type: ignore[list-item]
    for data in (Around(mixed), part, both):
        with pytest.raises(InvalidArgument, match="hides the weights"):
            st.DistributedChunkedSampler(data)
    mine: Any = Around(mixed)
    sampler = st.DistributedChunkedSampler(mixed, rank=0, world_size=1)
    assert len(DataLoader(mine, batch_size=10, sampler=sampler)) == 201
    plain: Any = shardwise.mix([train[:1800], train[1800:]])
    mine = Around(plain)
    assert len(DataLoader(mine, batch_size=10, shuffle=True)) == 201
    assert len(st.ChunkedSampler(Around(plain), rank=0, world_size=1)) == 2001
    assert len(DataLoader(plain, batch_size=10, shuffle=True)) == 201


def test_tokens_that_cannot_be_are_errors(train: shardwise.Dataset) -> None:
    sampler = st.ShardedSampler(train)
    with pytest.raises(
        InvalidArgument, match="the 3 batches"
    ):
        sampler.token(3)
    other = st.ShardedSampler(train, seed=1)
    with pytest.raises(Mismatch, match="seed 0 in the token, 1 in this run"):
        other.resume(sampler.token(3, batch_size=8))
    assert list(other) == list(st.ShardedSampler(train, seed=1))  # unchanged by the refused token


def test_a_state_that_would_make_torchs_batches_uneven_is_an_error(
    train: shardwise.Dataset,
) -> None:
    def batches(size: int, **options: Any) -> Any:
        sampler = st.DistributedChunkedSampler(53, seed=3, rank=0, world_size=2, **options)
        loader = stateful.StatefulDataLoader(Numbers(train), batch_size=size, sampler=sampler)
        return loader, sampler

    stateful = needs("torchdata.stateful_dataloader")
    loader, _ = batches(6)
    it = iter(loader)
    next(it)
    state = loader.state_dict()  # left: 21 of 27 samples, and 20 of 26
    for size, options, is_even in ((7, {}, True), (5, {}, False), (5, {"allow_uneven": True}, True)):
        again, _ = batches(size, **options)
        again.load_state_dict(state)
        if is_even:
            assert len([n for batch in again for n in batch]) == 21
            continue
        with pytest.raises(InvalidArgument, match="5 batches of 5, another 4: training"):
            next(iter(again))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_over_other_data_than_the_loaders_is_refused(
    train: shardwise.Dataset, workers: int
) -> None:
    def read(data: Any, over: Any) -> int:
        loader = DataLoader(data, 50, sampler=st.ChunkedSampler(over), num_workers=workers)
        return sum(len(batch["__key__"]) for batch in loader)

    some = train.select(range(0, len(train), 20))
    for over in (some, train[:100]):
        with pytest.raises(InvalidArgument, match="different data"):
            read(train, over)
    assert read(some, some) == read(some, train.select(range(0, len(train), 20))) == len(some)
    assert read(train, 60) == 60, "numbers alone are of any data"


def test_what_is_no_state_is_an_error() -> None:
    walk = iter(st.SequentialSampler(9))
    with pytest.raises(InvalidArgument, match="not a state .*: no entry"):
        walk.load_state_dict({"yielded": 3})


def test_samplers_pickle(train: shardwise.Dataset) -> None:
    for made in (
        st.DistributedChunkedSampler(train, seed=4, skip=[5, 7], rank=1, world_size=2),
        st.BatchSampler(st.ShardedSampler(train, rank=0, world_size=2), 64),
    ):
        made.set_epoch(6)
        again = pickle.loads(pickle.dumps(made))
        assert type(again) is type(made)
        assert list(again) == list(made)


# DataLoader.


class Numbers:
    """A user's data set: item i is the number in sample i's bytes."""

    def __init__(self, ds: shardwise.Dataset) -> None:
        self.ds = ds

    def __getitem__(self, index: int) -> int:
        number: int = self.ds[index].integer("cls")
        return number


@pytest.mark.parametrize(
    ("workers", "start", "persistent"),
    [
        (0, None, False),
        (2, "fork", False),
        (4, "fork", True),
        (2, "spawn", True),
        (2, "forkserver", False),
    ],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
def test_a_data_loader_delivers_the_samplers_order(
    train: shardwise.Dataset, workers: int, start: str | None, persistent: bool
) -> None:
    sampler = st.DistributedChunkedSampler(train, seed=9, chunk_size=50)
    loader: Any = DataLoader(
        Numbers(train),  # type: ignore[arg-type]
        batch_size=64,
        sampler=sampler,
        num_workers=workers,
        multiprocessing_context=start,
        persistent_workers=persistent,
    )
    assert len(loader) == 32
    for epoch in range(2 if persistent or workers == 0 else 1):
        sampler.set_epoch(epoch)
        delivered = torch.cat(list(loader)).tolist()
        assert delivered == list(sampler.core)
        assert proven(sampler, delivered).endswith("2,001 samples, each exactly once: proven")


@pytest.mark.parametrize("start", [None, "spawn"])
def test_samples_are_collated(train: shardwise.Dataset, start: str | None) -> None:
    batches = st.BatchSampler(st.SequentialSampler(train), 1000)
    loader: Any = DataLoader(
        train,  # type: ignore[arg-type]
        batch_sampler=batches,
        num_workers=0 if start is None else 1,
        multiprocessing_context=start,
    )
    first, second, third = list(loader)
    assert first.keys() == {"__key__", "__index__", "bin", "cls"}
    assert first["__key__"][:2] == ["000000", "000001"]
    assert first["__index__"].dtype == first["cls"].dtype == torch.int64
    assert first["cls"].tolist() == first["__index__"].tolist() == list(range(1000))
    assert second["bin"][7] == train[1007].bytes("bin")
    assert third["__index__"].tolist() == [2000]


# Batches of samples in a process that did not import shardwise.torch. bin and img have the same
# number of bytes in each sample, so torch's rule for mappings would collate them byte by byte.
COLLATED = """
import pathlib, sys
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, default_collate
import shardwise
def main(index):
    ds = shardwise.open(index)
    wanted = [{"__key__": [f"{i}", f"{i + 1}"], "cls": [i, i + 1],
               "bin": [bytes([i] * 4), bytes([i + 1] * 4)]} for i in (0, 2)]
    def plain(batches):
        return [{"__key__": batch["__key__"], "cls": batch["cls"].tolist(), "bin": batch["bin"]}
                for batch in batches]
    try:
        next(iter(DataLoader(ConcatDataset([ds]), batch_size=2)))
    except TypeError as error:
        assert "Sample" in str(error), error
    else:
        raise AssertionError("taken apart")
    assert torch.utils.data._utils.pin_memory.pin_memory([ds[0]])[0] == ds[0]
    assert next(iter(DataLoader(ds, batch_size=None))) == ds[0]
    assert "shardwise.torch" not in sys.modules
    for workers, start in ((2, "spawn"), (2, "fork"), (0, None)):
        for data in (ds, Subset(ds, range(4))):
            loader = DataLoader(data, batch_size=2, num_workers=workers,
                                multiprocessing_context=start)
            assert plain(loader) == wanted, (workers, start)
        assert ("shardwise.torch" in sys.modules) == (workers == 0)
    assert plain(DataLoader(ConcatDataset([ds]), batch_size=2)) == wanted
if __name__ == "__main__":
    main(sys.argv[1])
"""


def test_samples_are_collated_whoever_imported_what(tmp_path: Path) -> None:
    samples = [
        (f"{i}", {"bin": bytes([i] * 4), "img": bytes([i] * 7), "cls": b"%d" % i})
        for i in range(4)
    ]
    write_shard(tmp_path / "a.tar", [*samples[:3], ("3", {"bin": bytes([3] * 4), "cls": b"3"})])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    (tmp_path / "script.py").write_text(COLLATED)  # a file, so that spawned workers can import it
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", tmp_path / "a.idx"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("batched", [False, True, None])
@pytest.mark.parametrize("kind", ["DataLoader", "StatefulDataLoader"])
@pytest.mark.filterwarnings("ignore:using in_order=False", "ignore:.set_vital")
@pytest.mark.filterwarnings("ignore:Exception ignored")  # torch's, for incomplete iterators
def test_batches_out_of_order_are_refused(
    train: shardwise.Dataset, kind: str, batched: bool | None
) -> None:
    make: Any = DataLoader
    if kind != "DataLoader":
        make = needs("torchdata.stateful_dataloader").StatefulDataLoader
    sampler = st.SequentialSampler(train)
    given: dict[str, Any] = {"batch_size": 64, "sampler": sampler}
    if batched:
        given = {"batch_sampler": st.BatchSampler(sampler, 64)}
    if batched is None:  # the sampler, which does not need torch
        given["sampler"] = shardwise.Sampler(train, shardwise.Order("sequential"))

    def first(**options: Any) -> Any:
        return next(iter(make(train, **given, **options)))["__index__"].tolist()

    try:
        make(train, in_order=False)
    except TypeError:
        pytest.skip("needs DataLoader(in_order=); skipped because this torch lacks it")
    with pytest.raises(InvalidArgument, match=r"in_order=False\) .*out of order"):
        first(num_workers=2, in_order=False)
    for fine in ({"num_workers": 2}, {"num_workers": 1, "in_order": False}, {"in_order": False}):
        assert first(**fine) == list(range(64))


@pytest.mark.filterwarnings("ignore:Exception ignored")
def test_batches_out_of_order_are_refused_in_every_epoch(train: shardwise.Dataset) -> None:
    sampler = st.SequentialSampler(train)
    loader: Any = DataLoader(
        train,  # type: ignore[arg-type]
        batch_size=64,
        sampler=sampler,
        num_workers=2,
        persistent_workers=True,
    )
    next(iter(loader))
    loader.in_order = False
    with pytest.raises(InvalidArgument, match="in_order=True"):
        iter(loader)


def test_batches_of_another_size_than_the_samplers_are_refused(train: shardwise.Dataset) -> None:
    sampler = st.SequentialSampler(train, batch_size=32)
    with pytest.raises(InvalidArgument, match="sampler has 32, .*DataLoader 64"):
        next(iter(DataLoader(train, batch_size=64, sampler=sampler)))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="sampler has 32, .*DataLoader 64"):
        next(iter(torch.utils.data.BatchSampler(sampler, 64, drop_last=False)))
    loader: Any = DataLoader(train, batch_size=32, sampler=sampler)  # type: ignore[arg-type]
    it = iter(loader)
    trained = [next(it)["__index__"].tolist() for _ in range(5)]
    again = st.SequentialSampler(train)
    again.resume(sampler.token(5))
    assert sum(trained, []) + list(again) == list(range(len(train)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_token_counts_what_was_delivered_whatever_was_read_ahead(
    train: shardwise.Dataset, workers: int, persistent: bool
) -> None:
    if persistent and workers == 0:
        pytest.skip("needs workers; skipped because persistent_workers has no meaning without them")
    sampler = st.ChunkedSampler(train, chunk_size=10, window=3)
    loader: Any = DataLoader(
        train,  # type: ignore[arg-type]
        batch_size=20,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=persistent,
        prefetch_factor=4 if workers else None,
    )
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen: list[int] = []
        for batches, batch in enumerate(loader, 1):
            seen += batch["__index__"].tolist()
            if batches == 7:
                break
        token = sampler.token(7, 20)
        rest = st.ChunkedSampler(train, chunk_size=10, window=3)
        rest.resume(token)
        assert sorted(seen + list(rest)) == list(range(len(train)))


def test_fields_that_are_missing_are_none(tmp_path: Path) -> None:
    samples = [("a", {"cls": b"1", "txt": b"x"}), ("b", {"txt": b"y"}), ("c", {"cls": b"z"})]
    write_shard(tmp_path / "a.tar", samples)
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    ds = shardwise.open(tmp_path / "a.idx")
    made = torch.utils.data.default_collate([ds[0], ds[1]])
    assert made["cls"] == [1, None]
    assert made["txt"] == [b"x", b"y"]
    assert st.collate([ds[1]]).keys() == {"__key__", "__index__", "txt"}
    with pytest.raises(BadField):
        st.collate([ds[2]])


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
def test_a_stateful_data_loader_goes_on_exactly(
    train: shardwise.Dataset, workers: int, kind: str
) -> None:
    stateful = needs("torchdata.stateful_dataloader")

    def make() -> tuple[st.DistributedSampler, Any]:
        sampler = st.DistributedChunkedSampler(train, seed=9, rank=1, world_size=2)
        how: dict[str, Any] = {"batch_size": 16, "sampler": sampler}
        if kind == "batch_sampler":
            how = {"batch_sampler": st.BatchSampler(sampler, 16)}
        return sampler, stateful.StatefulDataLoader(Numbers(train), num_workers=workers, **how)

    sampler, loader = make()
    sampler.set_epoch(3)
    walk = iter(loader)
    delivered = torch.cat([next(walk) for _ in range(20)]).tolist()
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    del walk
    later, loader = make()
    later.set_epoch(3)
    loader.load_state_dict(state)
    delivered += torch.cat(list(loader)).tolist()
    assert delivered == list(sampler.core)
    later.set_epoch(4)  # the next epoch is complete
    assert torch.cat(list(loader)).tolist() == list(later.core)


def test_accelerate_may_deal_out_one_ranks_batches_only_without_repeating(
    train: shardwise.Dataset,
) -> None:
    data_loader = needs("accelerate.data_loader")

    def dealt(sampler: st.DistributedSampler, ours: bool, even: bool) -> list[list[int]]:
        make = st.BatchSampler if ours else torch.utils.data.BatchSampler
        batches = make(sampler, 16, drop_last=False)
        shard = data_loader.BatchSamplerShard(batches, 2, 0, even_batches=even)
        return [list(batch) for batch in shard]

    for ours in (False, True):
        for ranks, even in ((2, True), (2, False), (1, True)):
            sampler = st.ShardedSampler(train, rank=0, world_size=ranks)
            with pytest.raises(
                InvalidArgument, match="Accelerate"
            ):
                dealt(sampler, ours, even)
        alone = st.ShardedSampler(train, rank=0, world_size=1)
        assert len(dealt(alone, ours, even=False)) == 63


# Importing.


@pytest.mark.parametrize("modules", ["shardwise, torch", "torch, shardwise"])
def test_torch_and_shardwise_load_in_any_order(modules: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
