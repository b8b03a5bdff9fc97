"""Passes of pipelines: each sample once over all ranks and workers, and states within a pass."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, part_of, plain_samples, write_shard
from webdataset_support import NUM_SAMPLES, numbers, own_folders, rank_of, url  # noqa: F401

import shardwise
import shardwise.webdataset as wds
from shardwise.errors import InvalidArgument, Mismatch, Unsupported
from shardwise.webdataset.base import pytorch_worker_info

needs("torch")

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

ALL = Counter(range(NUM_SAMPLES))


def is_kept(sample: Any) -> bool:
    return int(sample["__key__"]) % 3 != 0


def pipeline(url: str, batch_size: int, drops: bool = False, **options: Any) -> wds.WebDataset:
    dataset = wds.WebDataset(url, shardshuffle=100, **options).shuffle(1000).decode()
    if drops:
        dataset = dataset.select(is_kept)
    return dataset.to_tuple("__key__", "cls").batched(batch_size)


def loader(url: str, batch_size: int, workers: int, **options: Any) -> wds.WebLoader:
    return wds.WebLoader(
        pipeline(url, batch_size, **options), batch_size=None, num_workers=workers
    )


def test_1003_samples_on_7_ranks_with_2_workers_come_once(url: str) -> None:
    for epoch in range(2):
        counts: Counter[int] = Counter()
        for rank in range(7):
            with rank_of(rank, 7):
                batches = loader(url, 16, 2)
                batches.set_epoch(epoch)
                for keys, labels in batches:
                    assert numbers(keys) == labels.tolist()
                    counts.update(numbers(keys))
        assert counts == ALL


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_passes_have_all_samples_in_other_orders(url: str, workers: int) -> None:
    batches = loader(url, 10, workers)
    passes = [[k for keys, _ in batches for k in numbers(keys)] for _ in range(2)]
    assert [Counter(one) for one in passes] == [ALL, ALL]
    assert passes[0] != passes[1]
    alone = loader(url, 10, 0)
    assert passes == [[k for keys, _ in alone for k in numbers(keys)] for _ in range(2)]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_plain_dataloader_has_the_same_passes(url: str, start: str) -> None:
    from torch.utils.data import DataLoader

    dataset = pipeline(url, 10)
    batches = DataLoader(
        dataset, batch_size=None, num_workers=2, multiprocessing_context=start,
        persistent_workers=start == "spawn",
    )
    passes = [[k for keys, _ in batches for k in numbers(keys)] for _ in range(2)]
    assert [Counter(one) for one in passes] == [ALL, ALL]
    assert passes[0] != passes[1]
    with pytest.raises(Unsupported, match="WebLoader"):
        dataset.state_dict()


def test_a_loader_that_batches_gives_each_sample_once(url: str) -> None:
    dataset = wds.WebDataset(url, shardshuffle=False).decode().to_tuple("__key__", "cls")
    batches = wds.WebLoader(dataset, batch_size=7, num_workers=2)
    seen = [k for keys, _ in batches for k in numbers(keys)]
    assert seen == list(range(NUM_SAMPLES))  # in shard order, as there is no shuffle


def test_without_splitters_each_rank_and_worker_has_all(url: str) -> None:
    with rank_of(3, 7):
        dataset = wds.WebDataset(url, nodesplitter=None).to_tuple("__key__")
        assert len(list(dataset)) == NUM_SAMPLES
        twice = wds.WebDataset(url, nodesplitter=None, workersplitter=None).to_tuple("__key__")
        batches = wds.WebLoader(twice, batch_size=None, num_workers=2)
        assert Counter(int(key) for (key,) in batches) == ALL + ALL
        with pytest.raises(Unsupported, match="workersplitter"):
            batches.state_dict()


def test_a_function_picks_shards(url: str) -> None:
    def second(src: Any) -> Any:
        return islice(src, 1, 2)

    dataset = wds.WebDataset(url, nodesplitter=second).to_tuple("__key__")
    assert numbers(key for (key,) in dataset) == list(range(401, 701))
    with pytest.raises(Unsupported, match="second"):
        dataset.state_dict()


def every_worker_its_shards(src: Any) -> Any:
    _, _, worker, num_workers = pytorch_worker_info()
    return islice(src, worker, None, num_workers)


def test_a_function_picks_shards_for_each_worker_after_a_look_at_a_sample(url: str) -> None:
    dataset = wds.WebDataset(url, workersplitter=every_worker_its_shards).to_tuple("__key__")
    assert next(iter(dataset)) == ("000000",)
    batches = wds.WebLoader(dataset, batch_size=None, num_workers=2)
    assert Counter(int(key) for (key,) in batches) == ALL


def test_a_function_picks_shards_anew_in_each_pass(url: str) -> None:
    calls: list[int] = []

    def one_after_another(shards: Any) -> Any:
        calls.append(len(calls))
        yield list(shards)[calls[-1] % 3]

    stages = [wds.SimpleShardList(url), one_after_another, wds.tarfile_to_samples()]
    for dataset in (
        wds.WebDataset(url, nodesplitter=one_after_another),
        wds.DataPipeline(*stages).repeat(2),
    ):
        calls.clear()
        first = iter(dataset)
        begun = [next(first)]
        others = [len(list(dataset)) // dataset.repetitions for _ in range(2)]
        assert (len(begun + list(first)) // dataset.repetitions, *others) == (401, 300, 302)


def test_a_function_that_picks_shards_without_end_is_refused(url: str) -> None:
    dataset = wds.WebDataset(url, nodesplitter=lambda shards: itertools.cycle(list(shards)))
    with pytest.raises(Unsupported, match="resampled=True"):
        iter(dataset)


def test_stages_of_shards_mean_what_they_say(url: str) -> None:
    def keys(*picks: Any) -> list[str]:
        stages = [wds.SimpleShardList(url), *picks, wds.tarfile_to_samples()]
        return [sample["__key__"] for sample in wds.DataPipeline(*stages)]

    assert keys(wds.shuffle(0)) == keys() == sorted(keys(wds.shuffle(10)))
    assert keys(wds.shuffle(10)) != keys()
    with pytest.raises(Unsupported, match=r"resampled\(n\)"):
        keys(wds.resampled(2))


def test_a_shard_that_is_listed_twice_comes_twice(url: str) -> None:
    shards = [url.replace("{000000..000002}", number) for number in ("000000", "000001", "000000")]
    dataset = wds.WebDataset(shards).shuffle(10).to_tuple("__key__", "__url__")
    counts = Counter(dataset)
    expected = {(f"{i:06}", shards[0]): 2 for i in range(401)}
    assert counts == {**expected, **{(f"{i:06}", shards[1]): 1 for i in range(401, 701)}}


def test_resampled_passes_have_no_end_and_with_epoch_ends_them(url: str) -> None:
    dataset = wds.WebDataset(url, resampled=True).shuffle(100).to_tuple("__key__")
    assert len(list(islice(iter(dataset), 3 * NUM_SAMPLES))) == 3 * NUM_SAMPLES
    loader = wds.WebLoader(dataset.batched(16), batch_size=None, num_workers=2)
    loader = loader.unbatched().shuffle(1000).batched(64)
    loader = loader.with_epoch(40)
    sizes = [len(keys) for (keys,) in loader]
    assert sizes == [64] * 40 == [len(keys) for (keys,) in loader]
    with pytest.raises(Unsupported, match="unbatched"):
        loader.state_dict()


def test_a_rank_without_samples_draws_none(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "small.tar", plain_samples(0, 2))
    dataset = wds.WebDataset(str(shard), resampled=True).with_epoch(5)
    drawn = []
    for rank in range(3):
        with rank_of(rank, 3):
            drawn.append(len(list(dataset)))
    assert drawn == [5, 5, 0]


def test_repeat_goes_through_several_orders_in_one_pass(url: str) -> None:
    dataset = wds.WebDataset(url).shuffle(10).to_tuple("__key__").repeat(2)
    seen = [int(key) for (key,) in dataset]
    assert Counter(seen) == ALL + ALL
    assert Counter(seen[:NUM_SAMPLES]) == ALL
    assert seen[:NUM_SAMPLES] != seen[NUM_SAMPLES:]


def test_more_workers_than_samples_are_no_error(tmp_path: Path, url: str) -> None:
    dataset = wds.WebDataset(url).slice(1).to_tuple("__key__")
    assert len(list(wds.WebLoader(dataset, batch_size=None, num_workers=2))) == 2
    with wds.TarWriter(str(tmp_path / "empty.tar")):
        pass
    with pytest.raises(InvalidArgument, match="empty_check"):
        list(wds.WebDataset(str(tmp_path / "empty.tar")))
    assert list(wds.WebDataset(str(tmp_path / "empty.tar"), empty_check=False)) == []


class Run:
    """A run that sometimes stops, and continues with other ranks and workers. The model has the
    samples that are left in each pass."""

    def __init__(self, url: str, dice: random.Random, drops: bool) -> None:
        self.url, self.dice, self.drops = url, dice, drops
        self.wanted = Counter(i for i in range(NUM_SAMPLES) if not drops or i % 3 != 0)
        self.left = self.wanted.copy()
        self.states: list[dict[str, Any]] = []

    def goes_on(self) -> None:
        """Continues with some numbers of ranks and workers. Takes some batches, perhaps all."""
        world_size = self.dice.choice([1, 2, 3])
        workers = self.dice.choice([0, 0, 1, 2])
        batch_size = self.dice.choice([5, 16])
        stops = self.dice.random() < 0.8
        steps = self.dice.randrange(NUM_SAMPLES // batch_size // world_size)
        states = []
        for rank in range(world_size):
            with rank_of(rank, world_size):
                batches = loader(self.url, batch_size, workers, drops=self.drops)
                if self.states:
                    batches.load_state_dict(self.states)
                for keys, _ in islice(batches, steps if stops else None):
                    seen = Counter(numbers(keys))
                    assert seen <= self.left, "a sample came twice, or of another pass"
                    self.left -= seen
                states.append(pickle.loads(pickle.dumps(batches.state_dict())))
        self.states = states
        if not stops:
            assert not self.left, "samples are missing at the end of the pass"
            self.left = self.wanted.copy()


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("seed", part_of(range(40), 4))
def test_runs_that_stop_and_go_on_elsewhere_give_each_sample_once(
    url: str, seed: int, drops: bool
) -> None:
    run = Run(url, random.Random(seed), drops)
    for _ in range(4):
        run.goes_on()
        if run.left == Counter():
            run.left = run.wanted.copy()


def test_the_state_of_a_pass_over_several_epochs(url: str) -> None:
    dataset = pipeline(url, 10).repeat()
    batches = wds.WebLoader(dataset, batch_size=None, num_workers=2)
    seen = Counter(k for keys, _ in islice(batches, 150) for k in numbers(keys))
    state = batches.state_dict()
    again = wds.WebLoader(pipeline(url, 10).repeat(), batch_size=None, num_workers=3)
    again.load_state_dict(state)
    rest = Counter(k for keys, _ in islice(again, 52) for k in numbers(keys))
    assert max((seen + rest).values()) == 2
    assert sum((seen + rest).values()) >= 2 * NUM_SAMPLES - 30


def test_with_epoch_goes_on_with_what_is_left_of_it(url: str) -> None:
    def made() -> Any:
        return wds.WebLoader(pipeline(url, 10).with_epoch(15), batch_size=None, num_workers=2)

    whole = [numbers(keys) for keys, _ in made()]
    for steps in (12, 13):
        batches = made()
        seen = [numbers(keys) for keys, _ in islice(batches, steps)]
        again = made()
        again.load_state_dict(batches.state_dict())
        rest = [numbers(keys) for keys, _ in again]
        assert Counter(map(str, seen + rest)) == Counter(map(str, whole))
        assert len(list(again)) == 30


def test_an_epoch_without_items_for_a_worker_does_not_end_a_pass(url: str) -> None:
    def is_rare(sample: Any) -> bool:
        return int(sample["__key__"]) % 200 == 0

    dataset = wds.WebDataset(url).shuffle(1000).select(is_rare).to_tuple("__key__")
    batches = wds.WebLoader(dataset.repeat(10), batch_size=None, num_workers=4)
    assert Counter(int(key) for (key,) in batches) == Counter({200 * i: 10 for i in range(6)})
    endless = wds.WebLoader(dataset.with_epoch(20), batch_size=None, num_workers=4)
    assert len(list(endless)) == 80
    nothing = wds.WebDataset(url).select(lambda sample: False).with_epoch(5)
    assert list(nothing) == []


def test_loaders_over_one_pipeline_count_passes_by_themselves(url: str) -> None:
    dataset = wds.WebDataset(url).shuffle(1000).to_tuple("cls")

    def labels(items: Any) -> list[int]:
        return [int(label) for (batch,) in items for label in batch]

    expected = Counter(labels(wds.WebLoader(dataset, batch_size=7)))
    one = wds.WebLoader(dataset, batch_size=7, num_workers=2)
    seen = labels(islice(one, 31))
    other = wds.WebLoader(dataset, batch_size=2, num_workers=1)
    state = one.state_dict()
    again = wds.WebLoader(dataset, batch_size=7, num_workers=3)
    again.load_state_dict(state)
    assert Counter(labels(other)) == expected
    assert Counter(seen + labels(again)) == expected


def test_a_loader_hears_what_its_pipeline_is_told(url: str) -> None:
    dataset = pipeline(url, 10)
    batches = wds.WebLoader(dataset, batch_size=None, num_workers=2)
    passes = [[k for keys, _ in batches for k in numbers(keys)] for _ in range(3)]
    dataset.set_epoch(1)
    assert [k for keys, _ in batches for k in numbers(keys)] == passes[1]
    mapped = batches.map(lambda batch: batch[0])
    other = batches.map(lambda batch: batch[1])
    next(iter(mapped))
    dataset.set_epoch(2)
    assert all(one._given == 0 for one in (batches, mapped, other))
    assert [k for keys in mapped for k in numbers(keys)] == passes[2]
    dataset.set_epoch(1)
    state = mapped.state_dict()
    again = loader(url, 10, 2)
    again.load_state_dict(state)
    assert [k for keys, _ in again for k in numbers(keys)] == passes[1]


def test_states_that_would_not_be_exact_are_refused(url: str) -> None:
    for batches in (loader(url, 10, 2).with_epoch(30), loader(url, 10, 0).repeat(2)):
        with pytest.raises(Unsupported, match="with_epoch.* on its dataset; "):
            batches.state_dict()
    dataset = wds.WebDataset(url, handler=wds.ignore_and_stop).to_tuple("__key__")
    with pytest.raises(Unsupported, match="ignore_and_stop"):
        dataset.state_dict()
    mapped = wds.WebDataset(url).map(len, handler=wds.warn_and_stop)
    by_place = wds.WebDataset(url).compose(wds.map(len, wds.warn_and_stop))
    for one in (mapped, by_place):
        with pytest.raises(Unsupported, match="warn_and_stop"):
            one.state_dict()
    for state in ([], {"version": 1, "parts": []}):
        with pytest.raises(InvalidArgument, match="no parts"):
            pipeline(url, 10).load_state_dict(state)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_stateful_dataloader_goes_on_in_later_passes(url: str, workers: int) -> None:
    stateful = needs("torchdata.stateful_dataloader").StatefulDataLoader

    def made() -> Any:
        return stateful(pipeline(url, 10), batch_size=None, num_workers=workers)

    batches = made()
    seen = [k for keys, _ in islice(batches, 25) for k in numbers(keys)]
    state = batches.state_dict()
    again = made()
    again.load_state_dict(state)
    passes = [[k for keys, _ in again for k in numbers(keys)] for _ in range(3)]
    assert Counter(seen + passes[0]) == ALL
    assert [Counter(one) for one in passes[1:]] == [ALL, ALL]


@pytest.mark.parametrize("stays", [False, True], ids=["new workers", "persistent workers"])
@pytest.mark.parametrize("length", ["repeat", "with_epoch"])
def test_a_stateful_dataloader_goes_on_in_passes_of_several_epochs(
    url: str, length: str, stays: bool
) -> None:
    stateful = needs("torchdata.stateful_dataloader").StatefulDataLoader

    def made() -> Any:
        dataset = pipeline(url, 100)
        dataset = dataset.repeat(2) if length == "repeat" else dataset.with_epoch(7)
        return stateful(dataset, batch_size=None, num_workers=2, persistent_workers=stays)

    batches = made()
    passes = [[numbers(keys) for keys, _ in batches] for _ in range(3)]
    for stop in (1, len(passes[1]) - 2):  # before worker 1 has begun, and in the last epoch
        batches = made()
        list(batches)
        seen = [numbers(keys) for keys, _ in islice(batches, stop)]
        again = made()
        again.load_state_dict(batches.state_dict())
        assert seen + [numbers(keys) for keys, _ in again] == passes[1]
        assert [numbers(keys) for keys, _ in again] == passes[2]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_that_stay_go_on_where_a_state_says(url: str, start: str) -> None:
    def made() -> wds.WebLoader:
        return wds.WebLoader(
            pipeline(url, 10), batch_size=None, num_workers=2, persistent_workers=True,
            multiprocessing_context=start,
        )

    batches = made()
    seen = [numbers(keys) for keys, _ in islice(batches, 33)]
    state = batches.state_dict()
    whole = seen + [numbers(keys) for keys, _ in islice(iter(batches), 0)]
    batches.load_state_dict(state)
    whole += [numbers(keys) for keys, _ in batches]
    assert Counter(k for keys in whole for k in keys) == ALL
    following = [numbers(keys) for keys, _ in batches]
    assert Counter(k for keys in following for k in keys) == ALL and following != whole


def test_a_pipeline_without_a_loader_has_a_state(url: str) -> None:
    dataset = pipeline(url, 10)
    seen = [k for keys, _ in islice(dataset, 20) for k in numbers(keys)]
    again = pipeline(url, 10)
    again.load_state_dict(dataset.state_dict())
    assert seen + [k for keys, _ in again for k in numbers(keys)] == [
        k for keys, _ in pipeline(url, 10) for k in numbers(keys)
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_keeps_the_place_of_a_loaded_state(url: str, workers: int) -> None:
    """A training loop calls set_epoch() at the beginning of each pass, even of the resumed one."""
    batches = loader(url, 10, workers)
    batches.set_epoch(1)
    before = [numbers(keys) for keys, _ in islice(batches, 5)]
    state = batches.state_dict()
    for made in (loader(url, 10, workers), pipeline(url, 10)):
        made.load_state_dict(state)
        made.set_epoch(1)
        rest = [numbers(keys) for keys, _ in made]
        assert sorted(sum(before + rest, [])) == list(range(NUM_SAMPLES))
        made.set_epoch(1)  # the pass had begun, so this begins a new one
        assert sorted(sum((numbers(keys) for keys, _ in made), [])) == list(range(NUM_SAMPLES))


def test_states_of_other_data_or_orders_are_refused(url: str) -> None:
    batches = loader(url, 10, 0)
    next(iter(batches))
    state = batches.state_dict()
    with pytest.raises(Mismatch, match="another order"):
        loader(url, 10, 0, seed=1).load_state_dict(state)
    one = url.replace("{000000..000002}", "000000")
    with pytest.raises(Mismatch):
        loader(one, 10, 0).load_state_dict(state)
    with pytest.raises(InvalidArgument, match="not a state"):
        batches.load_state_dict({"token": "sw2.x"})
    with rank_of(0, 2):
        half = loader(url, 10, 0)
        next(iter(half))
        with pytest.raises(InvalidArgument, match="1 of 2 ranks"):
            half.load_state_dict(half.state_dict())


def generator(src: Any) -> Any:
    yield from src


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda ds: ds.compose(generator), "generator"),
        (lambda ds: ds.unbatched(), "unbatched"),
        (lambda ds: ds.shuffle(5), "shuffle"),
        (lambda ds: ds.slice(5), "slice"),
        (lambda ds: ds.rsample(0.5), "rsample"),
        (lambda ds: ds.mcached(), "mcached"),
        (lambda ds: wds.DataPipeline(wds.RandomMix([ds, ds])), "RandomMix"),
    ],
)
def test_a_state_that_would_not_be_exact_is_refused_by_name(
    url: str, change: Any, name: str
) -> None:
    dataset = change(pipeline(url, 10))
    for one in (dataset, wds.WebLoader(dataset, batch_size=None)):
        with pytest.raises(Unsupported, match=name):
            one.state_dict()
        with pytest.raises(Unsupported, match=name):
            one.load_state_dict({})


def test_all_reasons_against_a_state_come_at_once(url: str) -> None:
    dataset = wds.WebDataset(url, handler=wds.ignore_and_stop, nodesplitter=generator)
    dataset = dataset.slice(50).batched(10).unbatched()
    names = ["slice, unbatched", "ignore_and_stop", "generator selects"]
    with pytest.raises(Unsupported, match=".*".join(names)):
        dataset.state_dict()
    batches = wds.WebLoader(dataset, batch_size=None).shuffle(5).with_epoch(30)
    with pytest.raises(Unsupported, match=".*".join([*names, "shuffle", "on its dataset"])):
        batches.state_dict()


def test_a_list_of_shards_alone_has_no_state(url: str) -> None:
    with pytest.raises(Unsupported, match=r"SimpleShardList has no state; add wds\.tarfile_to_samples"):
        wds.DataPipeline(wds.SimpleShardList(url), wds.split_by_node).state_dict()


def test_the_order_mixes_as_many_samples_as_were_asked(url: str) -> None:
    steps = wds.WebDataset(url).shuffle(100_000).decode().pipeline
    order = steps[0].order(100_000, None)
    assert order.options["window"] * order.options["chunk_size"] >= 100_000
    assert steps[0].order(0, None) == shardwise.Order("sequential")


def test_a_state_of_resampled_draws_goes_on_with_the_draws_that_are_left(url: str) -> None:
    def made(workers: int) -> wds.WebLoader:
        dataset = wds.WebDataset(url, resampled=True, seed=5).shuffle(10).to_tuple("__key__")
        return wds.WebLoader(dataset.batched(10), batch_size=None, num_workers=workers)

    batches = made(2)
    seen = Counter(k for (keys,) in islice(batches, 115) for k in numbers(keys))
    again = made(3)
    again.load_state_dict(batches.state_dict())
    seen += Counter(k for (keys,) in islice(again, 45) for k in numbers(keys))
    order = shardwise.Order("resampled", seed=5, unit="sample")
    draws = []
    for repetition in range(2):
        sampler = shardwise.Sampler(NUM_SAMPLES, order)
        sampler.set_epoch(repetition << 32)
        draws.append(Counter(sampler))
    assert draws[0] <= seen <= draws[0] + draws[1]
    assert sum(seen.values()) == 1600


def test_a_state_of_a_loader_that_batches(url: str) -> None:
    def made(workers: int) -> wds.WebLoader:
        dataset = wds.WebDataset(url).shuffle(10).select(is_kept).to_tuple("__key__")
        return wds.WebLoader(dataset, batch_size=7, num_workers=workers)

    batches = made(2)
    seen = [k for (keys,) in islice(batches, 21) for k in numbers(keys)]
    again = made(3)
    again.load_state_dict(batches.state_dict())
    rest = [k for (keys,) in again for k in numbers(keys)]
    assert Counter(seen + rest) == Counter(i for i in range(NUM_SAMPLES) if i % 3 != 0)


def test_a_state_behind_the_last_batch_begins_the_next_pass(url: str) -> None:
    batches = loader(url, 10, 2)
    first = [numbers(keys) for keys, _ in batches]
    again = loader(url, 10, 1)
    again.load_state_dict(batches.state_dict())
    following = [numbers(keys) for keys, _ in again]
    assert following == [numbers(keys) for keys, _ in batches] != first
