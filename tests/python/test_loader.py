"""shardwise.Loader: batches, epochs, resuming, ranks, mixtures."""

from __future__ import annotations

import inspect
import itertools
import pickle
import re
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FakeRanks, write_shard

import shardwise
from shardwise import ByLength, Loader, Order, _core, columns, errors, ranks
from shardwise.transforms import ImageTransform

THREADS = pytest.mark.parametrize("threads", [0, 1, 3])


def samples_of(loader: Loader) -> list[int]:
    return [int(sample) for batch in loader for sample in batch.samples]


@pytest.fixture
def rich(tmp_path: Path) -> shardwise.Dataset:
    """37 samples with fields of every kind."""
    import io
    import json

    def npy(array: np.ndarray[Any, Any]) -> bytes:
        out = io.BytesIO()
        np.save(out, array)
        return out.getvalue()

    def npz(a: np.ndarray[Any, Any]) -> bytes:
        out = io.BytesIO()
        np.savez(out, a=a)
        return out.getvalue()

    samples = []
    for i in range(37):
        samples.append(
            (
                f"k{i:03}",
                {
                    "bin": bytes([i]) * (i % 7),
                    "txt": f"größe {i}".encode(),
                    "json": json.dumps({"number": i}).encode(),
                    "tok": np.arange(i % 5, dtype=np.int32).tobytes(),
                    "cls": str(i * 3 - 20).encode(),
                    "fix.npy": npy(np.full((2, 3), i, np.float32)),
                    "any.npy": npy(np.full((i % 3, 2), i, np.int16)),
                    "z.npz": npz(a=np.arange(4, dtype=np.float64) + i),
                },
            )
        )
    (tmp_path / "rich").mkdir()
    write_shard(tmp_path / "rich" / "0.tar", samples[:20])
    write_shard(tmp_path / "rich" / "1.tar", samples[20:])
    shardwise.index(tmp_path / "rich.idx", tmp_path / "rich", threads=0)
    return shardwise.open(tmp_path / "rich.idx")


@THREADS
def test_columns_hold_what_the_samples_have(rich: shardwise.Dataset, threads: int) -> None:
    loader = Loader(
        rich,
        columns=[
            columns.bytes("bin"),
            columns.text("txt"),
            columns.json("json"),
            columns.tokens("tok"),
            columns.integer("cls"),
            columns.key(),
            columns.array("fix.npy", "float32", (2, 3)),
            columns.array("any.npy", np.int16),
            columns.npz("z.npz", "a", np.dtype("float64"), (4,)),
            columns.integer("nothing;cls").named("label"),
        ],
        order=Order(seed=5),
        batch_size=8,
        threads=threads,
    )
    seen = []
    for batch in loader:
        assert batch.keys()[:2] == ["bin", "txt"] and "label" in batch and "nope" not in batch
        assert set(dict(batch)) == set(batch.keys())
        for row, number in enumerate(batch.samples):
            sample = rich[int(number)]
            i = int(number)
            seen.append(i)
            assert batch["bin"][row].tobytes() == sample.bytes("bin")
            assert batch.bytes("bin")[row] == sample.bytes("bin")
            assert batch.text("txt")[row] == sample.text("txt") == f"größe {i}"
            assert batch.text("json")[row] == sample.text("json")
            assert batch["tok"][row].tolist() == list(range(i % 5))
            assert batch["tok"][row].dtype == np.int32
            assert batch["cls"][row] == i * 3 - 20 == batch["label"][row]
            assert batch.text("__key__")[row] == sample.key
            assert (batch["fix.npy"][row] == np.full((2, 3), i, np.float32)).all()
            assert batch["any.npy"][row].shape == (i % 3, 2)
            assert batch["any.npy"][row].dtype == np.int16 and (batch["any.npy"][row] == i).all()
            assert (batch["a"][row] == np.arange(4) + i).all()
        assert batch["fix.npy"].shape == (len(batch), 2, 3)
    assert sorted(seen) == list(range(37))
    assert loader.prove() == "epoch 0: 37 samples, each exactly once: proven"


def test_a_ragged_column_is_values_offsets_and_shapes(rich: shardwise.Dataset) -> None:
    loader = Loader(
        rich, columns=[columns.array("any.npy", "int16")], batch_size=6, order=Order("sequential")
    )
    ragged = next(iter(loader))["any.npy"]
    assert isinstance(ragged, shardwise.Ragged)
    assert ragged.offsets.tolist() == [0, 0, 2, 6, 6, 8, 12]
    assert ragged.shapes.tolist() == [[0, 2], [1, 2], [2, 2], [0, 2], [1, 2], [2, 2]]
    assert ragged.values.tolist() == [1] * 2 + [2] * 4 + [4] * 2 + [5] * 4
    assert len(ragged) == 6 and ragged[-1].tolist() == [[5, 5], [5, 5]]
    assert [row.shape for row in ragged] == [(0, 2), (1, 2), (2, 2)] * 2
    with pytest.raises(IndexError, match="no row 6; .*below 6"):
        ragged[6]
    assert repr(ragged) == "<shardwise.Ragged of 6 rows: 12 int16>"


def test_epochs_go_on_until_their_end(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.integer("cls")], batch_size=16)
    numbers = []
    for epoch in loader.epochs(3):
        numbers.append(epoch.number)
        assert len(epoch) == epoch.steps == len(loader) == 7
        assert sum(len(batch) for batch in epoch) == 103
        assert epoch.prove() == f"epoch {epoch.number}: 103 samples, each exactly once: proven"
        with pytest.raises(errors.InvalidArgument, match="has no more batches"):
            iter(epoch)
    assert numbers == [0, 1, 2]
    assert [epoch.number for epoch in loader.epochs(3)] == []
    assert next(loader.epochs()).number == 3


def test_a_plain_loop_is_an_epoch_and_the_next_one_the_next(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.integer("cls")], batch_size=50, threads=1)
    first, second = samples_of(loader), samples_of(loader)
    assert loader.epoch == 1 and first != second and sorted(first) == sorted(second)
    loader.set_epoch(0)
    assert samples_of(loader) == first
    assert loader.has_ended and loader.steps_left == 0


@pytest.mark.parametrize("rule", [None, ByLength(field="bin", window=40)])
def test_everybodys_loop_goes_on_where_the_state_stands(
    ds: shardwise.Dataset, rule: ByLength | None
) -> None:
    def loader() -> Loader:
        return Loader(ds, columns=[columns.key()], order=Order(seed=2), batch_size=8, by_length=rule)

    before = loader()
    before.set_epoch(1)
    taken = [n for batch in itertools.islice(before, 5) for n in batch.samples.tolist()]
    after = loader()
    after.load_state_dict(before.state_dict())
    for epoch in range(after.epoch, 3):
        after.set_epoch(epoch)
        assert after.steps_left == len(before) - (5 if epoch == 1 else 0)
        assert len(after) == len(before)
        taken += samples_of(after)
        assert after.prove() == f"epoch {epoch}: 103 samples, each exactly once: proven"
    assert sorted(taken) == sorted([*range(103), *range(103)])


def test_an_epoch_that_was_gone_on_with_is_whole_behind_its_end(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.key()], batch_size=8)
    for _ in itertools.islice(loader, 5):
        pass
    state = loader.state_dict()
    loader.load_state_dict(state)
    next(iter(loader))  # peek at a batch
    loader.set_epoch(0)
    assert len(samples_of(loader)) == 103 - 40
    loader.set_epoch(0)
    assert (len(loader), loader.steps, len(samples_of(loader))) == (13, 13, 103)


def test_an_epoch_that_was_left_behind_says_so(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.key()], batch_size=10)
    epoch = next(loader.epochs(5))
    batches = iter(epoch)
    next(batches)
    loader.set_epoch(1)
    for action in (lambda: next(batches), lambda: iter(epoch), epoch.prove):
        with pytest.raises(errors.NotExact, match="epoch 0 cannot continue, because the loader is in epoch 1"):
            action()


def test_ranks_that_differ_are_told_so(ds: shardwise.Dataset) -> None:
    def work(rank: ranks.Reducer, steps: int, **options: Any) -> list[str]:
        said = []
        loader = Loader(ds, columns=[columns.key()], ranks=rank, **options)
        for _ in range(steps):
            loader.next()
        for call in (loader.state_dict, loader.prove):
            with pytest.raises(shardwise.Error) as raised:
                call()
            said.append(f"{raised.value.code}: {raised.value}")
        return said

    for said in FakeRanks(3).run(lambda rank: work(rank, 1, batch_size=5 + rank.rank // 2)):
        assert all(text.startswith("Mismatch: ") for text in said)
        assert all("ranks differ: batch size; " in text for text in said)
    for said in FakeRanks(3).run(lambda rank: work(rank, rank.rank, batch_size=5)):
        assert said[0].startswith("Mismatch: ") and "ranks differ: number of steps" in said[0]
        assert said[1].startswith("NotExact: epoch 0: not exact: 15 deliveries, 103 expected")


def test_the_length_counts_what_was_taken_before_a_resume(ds: shardwise.Dataset) -> None:
    def make(batch_size: int = 10) -> Loader:
        return Loader(ds, columns=[columns.key()], batch_size=batch_size)

    state: dict[str, Any] = {}
    for taken in (0, 4, 7):  # several runs, one after another, in one epoch
        loader = make()
        if state:
            loader.load_state_dict(state)
        assert len(loader) == 11
        while loader.steps_left > 11 - taken:
            loader.next()
        state = loader.state_dict()
        assert state["batches"] == taken
    other = make(batch_size=33)
    other.load_state_dict(state)
    assert (len(other), other.steps) == (7 + 1, 1)
    other.next()
    state = other.state_dict()  # at the end of an epoch, a state is the beginning of the next
    assert state["batches"] == 0
    loader.load_state_dict(state)
    assert (loader.epoch, len(loader)) == (1, 11)
    loader.set_epoch(0)
    assert len(loader) == 11
    loader.next()
    del (state := loader.state_dict())["batches"]  # as in states of an earlier version
    loader.load_state_dict(state)
    assert len(loader) == loader.steps == 10


def test_ranks_have_equal_numbers_of_batches_and_replicas_equal_ones(ds: shardwise.Dataset) -> None:
    def work(rank: ranks.Reducer) -> tuple[list[int], int, str]:
        loader = Loader(ds, columns=[columns.key()], batch_size=9, replicas=2, ranks=rank)
        taken = [b.samples.tolist() for b in loader]
        return sum(taken, []), len(taken), loader.prove()

    results = FakeRanks(4).run(work)
    assert results[0] == results[1] and results[2] == results[3]
    assert sorted(results[0][0] + results[2][0]) == list(range(103))
    assert {result[1] for result in results} == {6}


def test_a_token_of_other_data_is_refused_and_changes_nothing(
    ds: shardwise.Dataset, rich: shardwise.Dataset
) -> None:
    other = Loader(rich, columns=[columns.key()], batch_size=8)
    other.next()
    loader = Loader(ds, columns=[columns.key()], batch_size=8)
    loader.next()
    with pytest.raises(errors.Mismatch):
        loader.load_state_dict(other.state_dict())
    assert loader.steps_left == loader.steps - 1
    with pytest.raises(errors.InvalidArgument):
        loader.load_state_dict({"token": "no token"})


def test_bad_samples_are_left_out_and_named(tmp_path: Path) -> None:
    samples = [(f"k{i}", {"cls": b"one" if i == 4 else str(i).encode()}) for i in range(10)]
    write_shard(tmp_path / "bad.tar", samples)
    shardwise.index(tmp_path / "bad.idx", tmp_path / "bad.tar", threads=0)
    data = shardwise.open(tmp_path / "bad.idx")
    strict = Loader(data, columns=[columns.integer("cls")], batch_size=10)
    with pytest.raises(errors.BadField, match="k4"):
        strict.next()
    loader = Loader(data, columns=[columns.integer("cls")], batch_size=10, max_bad=1)
    assert sorted(samples_of(loader)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert loader.prove().startswith("epoch 0: 9 samples")
    assert list(loader.bad_samples) == [4] and "k4" in loader.bad_samples[4]
    assert loader.stats().bad_samples == 1
    state = loader.state_dict()
    for asked, known in ((Order(), [4]), (Order(skip=[4]), [])):
        resumed = Loader(data, order=asked, columns=[columns.integer("cls")], max_bad=1)
        resumed.load_state_dict(state)
        assert list(resumed.bad_samples) == known


def test_a_mixture_draws_by_weights(ds: shardwise.Dataset, rich: shardwise.Dataset) -> None:
    mixed = shardwise.mix([ds, rich], [0.5, 0.5])
    assert len(mixed) == 140 and mixed.first_samples == (0, 103)
    assert mixed[103].key == "k000" and mixed[-1].key == "k036" and mixed[5].key == "000005"
    with pytest.raises(errors.OutOfRange, match="below 140"):
        mixed[140]
    loader = Loader(
        mixed,
        columns=[columns.integer("cls"), columns.key()],
        order=Order(seed=2, chunk_size=5),
        batch_size=20,
    )
    for batch in loader:
        for row, number in enumerate(batch.samples):
            assert batch.text("__key__")[row] == mixed[int(number)].key
    drawn = Loader(mixed, columns=[columns.key()], order=Order(epoch_size=4000), batch_size=4000)
    assert abs(sum(sample < 103 for sample in samples_of(drawn)) - 2000) < 200
    with pytest.raises(errors.InvalidArgument, match="^3 weights for 2 data sets; "):
        shardwise.mix([ds, rich], [1, 2, 3])
    with pytest.raises(errors.InvalidArgument, match="^1 weight for 2 data sets; "):
        shardwise.mix([ds, rich], [1])
    with pytest.raises(errors.InvalidArgument, match="cannot be mixed"):
        Loader(mixed, columns=[columns.key()], order=Order("resampled"))


def test_functions_know_the_data_set_of_a_sample(
    ds: shardwise.Dataset, rich: shardwise.Dataset
) -> None:
    seen: list[tuple[bool, str]] = []

    def note(sample: shardwise.Sample, random: int) -> int:
        seen.append((sample.dataset is ds, sample.key))
        assert sample.dataset[sample.index] == sample
        assert mixed[sample.number] == sample
        return sample.index

    mixed = shardwise.mix([ds, rich])
    loader = Loader(
        mixed,
        columns=[columns.function("i", "int64", (), note)],
        batch_size=16,
        threads=2,
    )
    for batch in loader:
        expected = [int(s) if s < 103 else int(s) - 103 for s in batch.samples]
        assert batch["i"].tolist() == expected
    assert sorted(seen) == sorted(
        [(True, ds[i].key) for i in range(103)] + [(False, rich[i].key) for i in range(37)]
    )


def test_packed_sequences(rich: shardwise.Dataset) -> None:
    rule = shardwise.ByLength("tok", unit=4, pack="tok", pack_to=8, padding=-1)
    loader = Loader(rich, columns=[columns.tokens("tok")], batch_size=2, by_length=rule)
    num_tokens = 0
    for batch in loader:
        assert batch["tok"].shape == batch["tok_segments"].shape == (2, 8)
        there = batch["tok_segments"] > 0
        assert (batch["tok"][~there] == -1).all()
        assert (batch["tok"][there] == batch["tok_positions"][there]).all()
        num_tokens += int(there.sum())
    assert num_tokens == sum(i % 5 for i in range(37))


def test_statistics(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.bytes("bin")], batch_size=10, threads=1)
    assert "no batch" in loader.summary()
    samples_of(loader)
    stats = loader.stats()
    assert (stats.batches, stats.samples, stats.bad_samples) == (11, 103, 0)
    assert stats.bytes_read == sum(len(ds[i]["bin"]) for i in range(103))
    assert (stats.threads, stats.prefetch, stats.fetch_threads) == (1, 2, 0)
    assert sum(stats.sample_times) == 103 and stats.elapsed >= stats.waited > 0
    assert "bound" in loader.summary()
    assert loader.cache_warning() is None


def test_stop_ends_what_comes_until_the_loader_is_moved(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.key()], batch_size=10)
    loader.start()
    first = loader.next()
    assert first is not None
    loader.stop()
    with pytest.raises(errors.Cancelled, match="the loader was stopped"):
        loader.next()
    with pytest.raises(errors.Cancelled, match="the loader was stopped"):
        next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    assert sorted(first.samples.tolist() + samples_of(loader)) == list(range(103))
    again = Loader(ds, columns=[columns.key()], batch_size=10, restart=True)
    again.next()
    again.stop()
    with pytest.raises(errors.Cancelled, match="the loader was stopped"):
        next(iter(again))
    again.set_epoch(0)
    assert len(samples_of(again)) == 103


def test_stop_ends_a_wait_in_another_thread(ds: shardwise.Dataset) -> None:
    go = threading.Event()
    entered = threading.Event()

    def wait(sample: shardwise.Sample, random: int) -> int:
        entered.set()
        go.wait()
        return 0

    loader = Loader(ds, columns=[columns.function("w", "int64", (), wait)], batch_size=4, threads=1)
    raised: list[BaseException] = []

    def consume() -> None:
        try:
            loader.next()
        except BaseException as error:
            raised.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    entered.wait()
    with pytest.raises(errors.Unsupported, match="already in use"):
        loader.next()
    loader.stop()
    consumer.join()
    assert isinstance(raised[0], errors.Cancelled)
    go.set()
    loader.close()


def test_a_closed_loader_says_so(ds: shardwise.Dataset) -> None:
    with Loader(ds, columns=[columns.key()]) as loader:
        batch = loader.next()
    assert batch is not None and len(batch) == 32
    for action in (loader.next, loader.stats, loader.prove, loader.state_dict, loader.start):
        with pytest.raises(errors.InvalidArgument, match="the loader is closed; "):
            action()
    loader.stop()
    loader.close()


def test_options_and_statistics_are_those_of_the_library(ds: shardwise.Dataset) -> None:
    parameters = inspect.signature(Loader).parameters
    numbers = _core.Loader.numbers()
    assert len(numbers) >= 9
    for name, (default, _) in numbers.items():
        assert parameters[name].default == default, name
    others = {"data", "columns", "order", "by_length", "by_group", "mix", "memory", "arrays", "ranks"}
    others |= {"restart"}
    assert set(parameters) == others | set(numbers)
    with Loader(ds, columns=[columns.key()]) as loader:
        assert tuple(loader._core.stats()) == shardwise.LoaderStats._fields


def test_what_cannot_be_is_named(ds: shardwise.Dataset) -> None:
    key = columns.key()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"columns": [key], "batch_size": 0}, "batch size .*out of range: 0"),
        ({"columns": [key, key]}, "the same name: '__key__'"),
        ({"columns": [key], "threads": 2000}, "threads is 2000; .*1024"),
        ({"columns": [key], "prefetch": 2**31}, "prefetch is 2147483648; .*65536"),
        ({"columns": [key], "fetch_threads": 1025}, "fetch_threads is 1025; .*1024"),
        ({"columns": [key], "mix": shardwise.Mixup("jpg", 0.2)}, "jpg"),
        ({"columns": [key], "by_length": shardwise.ByLength("bin", window=-1)}, "window=-1"),
    ]
    wrong: dict[str, Any] = {"batch_size": -1, "threads": 1.5, "prefetch": 2**64, "order": "wids"}
    wrong |= {"by_length": 8, "by_group": 8, "mix": 0.2, "ranks": 1, "memory": 3}
    for name, value in wrong.items():
        cases.append(({"columns": [key], name: value}, f"^not valid: {name}={value!r}; "))
    for options, text in cases:
        with pytest.raises(errors.InvalidArgument, match=text):
            Loader(ds, **options)
    for data in (None, "train.idx", [ds]):
        with pytest.raises(errors.InvalidArgument, match="^not valid: data=.*; give a shardwise.D"):
            Loader(data, columns=[key])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^columns= is not a list"):
        Loader(ds, columns=key)  # type: ignore[arg-type]
    with pytest.raises(errors.NotFound, match="nope"):
        Loader(ds, columns=[key], by_length=shardwise.ByLength("nope"))
    with pytest.raises(TypeError, match="shardwise.columns"):
        Loader(ds, columns=["bin"])  # type: ignore[list-item]
    with pytest.raises(errors.InvalidArgument, match="choose one of: bool, uint8"):
        columns.tokens("tok", "float")
    with pytest.raises(errors.InvalidArgument, match="leave out shape"):
        columns.array("x.npy", "float32", ())
    with pytest.raises(errors.InvalidArgument, match="pickle"):
        columns.array("x.pkl", "float32")
    with pytest.raises(errors.InvalidArgument, match="^not valid: fields=3; .*field"):
        columns.integer(3)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="^not valid: shape=2; .*sizes"):
        columns.array("x.npy", "float32", 2)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="^not valid: make=None; .*function"):
        columns.function("f", "float32", (), None)  # type: ignore[arg-type]


def test_what_a_loader_cannot_do_is_named(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.key()])
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: loader.set_epoch(-1), "epoch=-1; give a whole number"),
        (lambda: loader.epochs(1.5), "end=1.5; give a whole number"),  # type: ignore[arg-type]
        (lambda: loader.load_state_dict({}), "state_dict={}; give the complete state_dict"),
        (lambda: loader.load_state_dict("sw2."), "state_dict='sw2.'"),  # type: ignore[arg-type]
        (lambda: loader.load_state_dict({"token": "t", "batches": -1}), "state_dict="),
        (
            lambda: loader.load_state_dict({**loader.state_dict(), "batches": 2**70}),
            "state_dict={'batches': 1180591620717411303424, .*}; give the complete state_dict",
        ),
        (lambda: shardwise.mix(ds), "datasets="),  # type: ignore[arg-type]
        (lambda: shardwise.mix(["a.idx"]), "datasets='a.idx'"),  # type: ignore[list-item]
        (lambda: shardwise.mix([ds], ["x"]), "weights="),  # type: ignore[list-item]
        (lambda: ranks.Reducer(0, 1.5, sum), "world_size=1.5"),  # type: ignore[arg-type]
        (lambda: ranks.Reducer(0, 1, None), "all_reduce_sum=None"),  # type: ignore[arg-type]
    ]
    for call, text in refused:
        with pytest.raises(errors.InvalidArgument, match="^not valid: " + text):
            call()


def test_a_missing_column_is_named_with_those_there_are(ds: shardwise.Dataset) -> None:
    batch = Loader(ds, columns=[columns.integer("cls")]).next()
    assert batch is not None
    with pytest.raises(errors.NotFound, match="cls"):
        batch["jpg"]
    with pytest.raises(errors.InvalidArgument, match="'cls' has values of int64"):
        batch.text("cls")
    assert repr(batch) == "<shardwise.Batch of 32 rows: 'cls' int64 [32]>"


def test_sums_are_held_against_what_they_have_to_be(ds: shardwise.Dataset) -> None:
    def loader_of(all_reduce_sum: Callable[[list[int]], Any]) -> Loader:
        return Loader(
            ds, columns=[columns.key()], batch_size=103, ranks=ranks.Reducer(0, 1, all_reduce_sum)
        )

    def broken(words: list[int]) -> list[int]:
        raise ConnectionError("the peer is gone")

    loader = loader_of(broken)
    loader.next()
    with pytest.raises(ConnectionError, match="the peer is gone"):
        loader.prove()
    loader = loader_of(lambda words: words[:-1])
    loader.next()
    with pytest.raises(errors.Distributed, match="numbers instead of"):
        loader.prove()
    loader = loader_of(lambda words: ["x"] * len(words))
    loader.next()
    with pytest.raises(TypeError, match="list of whole numbers"):
        loader.prove()
    with pytest.raises(errors.InvalidArgument, match="rank=2 with world_size=2"):
        ranks.Reducer(2, 2, lambda words: words)
    with pytest.raises(errors.InvalidArgument, match="local_rank and local_world_size"):
        ranks.Reducer(0, 2, lambda words: words, local_rank=0)


def test_one_of_several_ranks_has_to_say_that_it_is_alone(
    ds: shardwise.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(errors.InvalidArgument) as raised:
        Loader(ds, columns=[columns.key()])
    said = str(raised.value)
    assert "rank 3 of 8; " in said and "torch.distributed.init_process_group()" in said
    for alone in (None, ranks.alone()):
        loader = Loader(ds, columns=[columns.key()], ranks=alone)
        assert len(samples_of(loader)) == 103
    with pytest.raises(errors.InvalidArgument, match="ranks='all'"):
        Loader(ds, columns=[columns.key()], ranks="all")


def test_a_loader_says_that_it_is_no_data_loader(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.key()])
    for name in ("dataset", "sampler", "batch_sampler"):
        assert not hasattr(loader, name)
        with pytest.raises(AttributeError, match=f"has no '{name}', .*skip_first_batches"):
            getattr(loader, name)
    with pytest.raises(AttributeError, match="^'Loader' object has no attribute 'nix'$"):
        loader.nix


def test_a_loader_does_not_pickle(ds: shardwise.Dataset) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Loader(ds, columns=[columns.key()]))


COLUMNS_MADE: dict[str, Callable[[], columns.Column]] = {
    "bytes": lambda: columns.bytes("bin"),
    "text": lambda: columns.text("bin;cls").named("other"),
    "json": lambda: columns.json("cls"),
    "integer": lambda: columns.integer("cls"),
    "key": columns.key,
    "tokens": lambda: columns.tokens("bin", "uint16"),
    "array": lambda: columns.array("a.npy", np.float32, (3, 4)),
    "npz": lambda: columns.npz("b.npz", "x", "int64"),
    "image": lambda: columns.image("jpg", ImageTransform(resize=(4, 6))),
    "function": lambda: columns.function("f", "int64", (), number_of).named("g"),
    "decoded": lambda: columns.decoded("cls", "int64", (), twice),
}


def number_of(sample: shardwise.Sample, random: int) -> int:
    return sample.integer("cls") + random % 7


def twice(data: bytes, random: int) -> int:
    return 2 * int(data)


@pytest.mark.parametrize("kind", COLUMNS_MADE)
def test_a_column_pickles(kind: str, ds: shardwise.Dataset) -> None:
    column = COLUMNS_MADE[kind]()
    again = pickle.loads(pickle.dumps(column))
    assert type(again) is type(column)
    assert (again.name, again.dtype, repr(again)) == (column.name, column.dtype, repr(column))
    if kind in ("bytes", "integer", "key", "function", "decoded"):
        batches = [
            next(iter(Loader(ds, columns=[one], batch_size=8, threads=0)))[column.name]
            for one in (column, again, pickle.loads(pickle.dumps(again)))
        ]
        for batch in batches[1:]:
            np.testing.assert_array_equal(np.asarray(batch[0]), np.asarray(batches[0][0]))


def test_a_column_of_a_function_that_does_not_pickle_says_so() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(columns.function("f", "int64", (), lambda sample, random: 1))


def taken(loader: Loader, most: int = 1000) -> list[int]:
    numbers = []
    for number, batch in enumerate(loader):
        numbers += batch["cls"].tolist()
        if number + 1 == most:
            break
    return numbers


@THREADS
def test_an_evaluation_begins_anew_with_each_loop(ds: shardwise.Dataset, threads: int) -> None:
    """Lightning's sanity check takes two batches. The first validation must then get all
    batches."""
    made: dict[str, Any] = {"columns": [columns.integer("cls")], "batch_size": 10}
    evaluation = Loader(ds, **made, order=Order("sequential"), threads=threads)
    assert taken(evaluation, 2) == list(range(20))
    assert taken(evaluation) == list(range(103))
    assert evaluation.prove() == "epoch 0: 103 samples, each exactly once: proven"
    next(iter(evaluation))
    assert taken(evaluation) == list(range(103))
    assert evaluation.prove() == "epoch 1: 103 samples, each exactly once: proven"
    shuffled = Loader(ds, **made, order=Order(seed=3), threads=threads, restart=True)
    first = taken(shuffled, 3)
    whole = taken(shuffled)
    assert (whole[:30], sorted(whole)) == (first, list(range(103)))


def test_where_a_state_was_loaded_a_loop_goes_on(ds: shardwise.Dataset) -> None:
    made: dict[str, Any] = {
        "columns": [columns.integer("cls")],
        "batch_size": 10,
        "order": Order("sequential"),
    }
    first = Loader(ds, **made)
    taken(first, 3)
    state = first.state_dict()
    again = Loader(ds, **made)
    again.load_state_dict(state)
    assert taken(again, 1) == list(range(30, 40))
    with pytest.warns(UserWarning, match="after the 1 batches"):
        assert taken(again) == list(range(40, 103))
    assert again.prove() == "epoch 0: 103 samples, each exactly once: proven"
    forced = Loader(ds, **made, restart=True)
    forced.load_state_dict(state)
    for _ in range(2):
        assert taken(forced, 1) == list(range(30, 40)), "the epoch begins where the state stands"
    one_after_another = Loader(ds, **made, restart=False)
    taken(one_after_another, 3)
    with pytest.warns(UserWarning):
        assert taken(one_after_another) == list(range(30, 103))


def test_a_batch_that_a_loop_goes_on_behind_is_not_lost_silently(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.integer("cls")], batch_size=10, order=Order(seed=1))
    peeked = next(iter(loader))["cls"].tolist()
    with pytest.warns(UserWarning, match=r"after the 1 batches .* set_epoch\(0\)") as seen:
        rest = taken(loader, 4)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no second warning
        assert sorted(peeked + rest + taken(loader)) == list(range(103))
        loader.set_epoch(5)
        taken(loader)
        assert len(taken(loader)) == 103  # this loop reads the next epoch
        for epoch in loader.epochs(9):
            for _ in epoch:
                break
            for _ in epoch:  # epochs() continues explicitly: no warning
                pass


@THREADS
def test_a_loop_beside_one_that_is_not_at_its_end_is_warned_of(
    ds: shardwise.Dataset, threads: int
) -> None:
    """Lightning's sanity check is such a loop: its iterator still exists when the first validation
    begins."""
    made: dict[str, Any] = {"columns": [columns.integer("cls")], "batch_size": 10, "threads": threads}
    loader = Loader(ds, **made, order=Order(seed=1))
    alive = iter(loader)
    next(alive), next(alive)
    with pytest.warns(UserWarning, match="after the 2 batches") as seen:
        assert sum(len(batch) for batch in loader) == 83
    assert seen[0].filename == __file__
    assert next(alive, None) is None
    side_by_side = Loader(ds, **made, order=Order(seed=1))
    with pytest.warns(UserWarning, match="after the 1 batches"):
        pairs = list(zip(side_by_side, side_by_side))
    assert len(pairs) == 5
    anew = Loader(ds, **made, order=Order("sequential"))
    alive = iter(anew)
    next(alive)
    assert taken(anew) == list(range(103))
    with pytest.raises(errors.NotExact, match="a later loop .*epoch 0; "):
        next(alive)
    with pytest.raises(errors.NotExact, match="a later loop"):
        list(zip(anew, anew))


def test_a_loop_after_an_error_goes_on_without_a_warning(ds: shardwise.Dataset) -> None:
    def make(sample: shardwise.Sample, random: int) -> int:
        if sample.index == 25:
            raise ZeroDivisionError
        return 1

    loader = Loader(
        ds,
        columns=[columns.function("f", "int64", (), make)],
        batch_size=10,
        order=Order("sequential"),
        restart=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroDivisionError):
            for _ in loader:
                pass
        assert sum(len(batch) for batch in loader) == 73


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("num_workers", "give threads="),
        ("num_replicas", "give ranks="),
        ("shuffle", 'give order=Order(seed=...), or order=Order("sequential")'),
        ("collate_fn", "give columns="),
        ("pin_memory", "give memory=torch_memory(pinned=True)"),
        ("seed", "give order=Order(seed=...)"),
        ("treads", "did you mean 'threads'?"),
        ("bacth_size", "did you mean 'batch_size'?"),
    ],
)
def test_an_option_of_a_dataloader_names_what_a_loader_has(
    ds: shardwise.Dataset, option: str, advice: str
) -> None:
    options: dict[str, Any] = {option: 4}
    with pytest.raises(TypeError, match=re.escape(f"no option {option!r}; {advice}")):
        Loader(ds, columns=[columns.integer("cls")], **options)
    nothing: dict[str, Any] = {"xyzzy": 4}
    with pytest.raises(TypeError, match="no option 'xyzzy'; choose from data, columns, "):
        Loader(ds, columns=[columns.integer("cls")], **nothing)
    order: Any = "sequential"
    with pytest.raises(errors.InvalidArgument, match=re.escape('give a shardwise.Order, e.g. Order("seq')):
        Loader(ds, columns=[columns.integer("cls")], order=order)


@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_with_a_tail_no_rank_has_an_empty_or_smaller_batch(tail: str) -> None:
    """python-loader.md promises this for tail: every rank has the same number of samples in each
    step."""
    empty = 0
    for samples, world_size, batch_size in itertools.product(range(3, 30), (2, 3), (1, 2, 4)):
        def sizes_of(kind: str) -> list[list[int]]:
            all_sizes = []
            for rank in range(world_size):
                sampler = shardwise.Sampler(
                    samples, Order(tail=kind), rank=rank, world_size=world_size, batch_size=batch_size
                )
                lists = [len(numbers) for numbers in sampler.batches(batch_size)]
                all_sizes.append(lists + [0] * (sampler.steps - len(lists)))
            return all_sizes

        sizes = sizes_of(tail)
        assert all(one == sizes[0] for one in sizes)
        assert 0 not in sizes[0]
        delivered = sum(map(sum, sizes))
        assert abs(delivered - samples) < world_size
        empty += any(0 in one for one in sizes_of("exact"))
    assert empty > 0, "which is what it is for"
