"""Which samples a rank has in a step, and where a sample comes: as the commands say."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeRanks, needs

import shardwise
from shardwise import Loader, Order, columns, errors, explain, when
from shardwise.explaining import StepSample

PROGRAM = shutil.which("shardwise", path=str(Path(shardwise.__file__).parents[2] / "bin"))


def said_by(command: str, *arguments: object) -> list[dict[str, Any]]:
    if PROGRAM is None:
        pytest.skip("needs the program shardwise; skipped because it is not in PATH")
    done = subprocess.run(
        [PROGRAM, command, "--json", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def without_group(found: StepSample) -> dict[str, Any]:
    """What the command prints of a sample whose batch has no group."""
    said = found._asdict()
    assert said.pop("group") == ""
    return said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 17, "chunk_size": 10, "window": 2}, ["--seed", 17, "--chunk", 10, "--window", 2]),
        ({"kind": "sharded", "seed": 3, "window": 2}, ["--sampler", "sharded", "--seed", 3, "--window", 2]),
        ({"kind": "sequential", "tail": "drop"}, ["--sampler", "sequential", "--tail", "drop"]),
    ],
    ids=["chunked", "sharded", "sequential"],
)
def test_the_commands_say_the_same(
    ds: shardwise.Dataset, options: dict[str, Any], words: list[object]
) -> None:
    order = Order(**options)
    run = [ds.path, *words, "--epoch", 3, "--world", 3, "--batch", 4]
    ranks = {"world_size": 3, "batch_size": 4, "epoch": 3}
    for step in (0, 5):
        found = explain(ds, order, step=step, **ranks)  # type: ignore[arg-type]
        assert [without_group(one) for one in found] == said_by("explain", *run, "--step", step)
    sample = found[-1].sample
    times = when(ds, order, sample, **ranks)  # type: ignore[arg-type]
    assert times == when(ds, order, found[-1].key, **ranks)  # type: ignore[arg-type]
    assert [time._asdict() for time in times] == said_by("when", *run, "--sample", sample)
    assert [(time.rank, time.step, time.place) for time in times] == [(2, 5, 3)]


def test_a_token_begins_where_it_stands(ds: shardwise.Dataset) -> None:
    order = Order(seed=17, chunk_size=10, window=2)
    sampler = shardwise.Sampler(ds, order, world_size=2, batch_size=4)
    sampler.set_epoch(2)
    token = sampler.token(3)
    found = explain(ds, order, step=1, world_size=3, batch_size=2, state=token)
    run = [ds.path, "--token", token, "--world", 3, "--batch", 2]
    assert [without_group(one) for one in found] == said_by("explain", *run, "--step", 1)
    assert found == explain(
        ds, order, step=1, world_size=3, batch_size=2, state={"token": token, "batches": 3}
    )
    before = explain(ds, order, step=0, world_size=2, batch_size=4, epoch=2)[0]
    assert when(ds, order, before.sample, state=token) == []
    assert len(when(ds, order, before.sample, state=token, epoch=3)) == 1
    with pytest.raises(errors.Mismatch):
        explain(ds, Order(seed=18), step=0, state=token)


def loader_of(data: Any, ranks: Any = None, **options: Any) -> Loader:
    order = Order(seed=17, chunk_size=10, window=2)
    return Loader(
        data, columns=[columns.integer("cls")], order=order, batch_size=8, ranks=ranks, **options
    )


def test_a_loader_says_what_its_batches_hold(ds: shardwise.Dataset) -> None:
    def run(rank: Any) -> Any:
        loader = loader_of(ds, rank)
        loader.set_epoch(1)
        given = [batch.samples.tolist() for _, batch in zip(range(3), loader, strict=False)]
        state = loader.state_dict()
        again = loader_of(ds, rank)
        again.load_state_dict(state)
        given += [batch.samples.tolist() for batch in again]
        said = [loader.explain(step) for step in range(3)]
        said += [again.explain(step) for step in range(again.steps)]
        own = [[one.sample for one in step if one.rank == rank.rank] for step in said]
        assert own == given
        place = again.when(given[4][2])
        assert [(one.rank, one.step, one.place) for one in place] == [(rank.rank, 1, 2)]
        assert again.when(given[0][0]) == []
        again.set_epoch(2)
        again.set_epoch(1)
        assert again.explain(0) == loader.explain(0)
        return len(given)

    counts = FakeRanks(2).run(run)
    assert counts[0] == counts[1]


def test_keys_of_a_mixture_and_of_a_view(ds: shardwise.Dataset) -> None:
    mixed = shardwise.mix([ds[:10], ds[50:]])
    found = explain(mixed, Order("sequential"), step=0, batch_size=12)
    assert [one.key for one in found][-3:] == ["000009", "000050", "000051"]
    assert found[-1].url == ds[51].shard_path and found[-1].sample == 11
    assert when(mixed, Order("sequential"), "000051") == [(0, 11, 0, 11)]
    with pytest.raises(errors.NotFound, match="000020"):
        when(mixed, None, "000020")


def test_a_length_has_no_keys() -> None:
    found = explain(10, Order("sequential"), step=1, batch_size=2)
    assert found == [(0, 0, 2, None, None, None, ""), (0, 1, 3, None, None, None, "")]
    with pytest.raises(errors.InvalidArgument, match="key"):
        when(10, None, "a")


def test_what_there_is_not_is_an_error(ds: shardwise.Dataset) -> None:
    with pytest.raises(errors.OutOfRange, match="no step 99"):
        explain(ds, step=99, batch_size=50)
    with pytest.raises(errors.OutOfRange, match="sample 1000"):
        when(ds, None, 1000)
    with pytest.raises(TypeError, match="when.* no option 'steps'; .*'state'"):
        when(ds, Order(), 3, steps=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="explain.* no option 'batchsize'; .* 'batch_size'"):
        explain(ds, step=0, batchsize=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="choose from .*, batch_size, "):
        explain(ds, step=0, rank=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError) as raised:
        explain(ds, step=0, batch_size="2")  # type: ignore[arg-type]
    assert "no option" not in str(raised.value)
    with pytest.raises(errors.InvalidArgument, match="state=7"):
        explain(ds, step=0, state=7)
    by_length = loader_of(ds, by_length=shardwise.ByLength(field="bin"))
    with pytest.raises(errors.OutOfRange, match=r"no step 13: .*\[0, 13\)"):
        by_length.explain(13)
    with pytest.raises(errors.OutOfRange):
        by_length.when(1000)
    for step, batch in enumerate(by_length):
        assert [one.sample for one in by_length.explain(step)] == batch.samples.tolist()


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_a_batch_sampler_says_what_its_lists_hold(even: bool, drop_last: bool) -> None:
    needs("torch")
    from shardwise.torch import BatchSampler, SequentialSampler

    made = [SequentialSampler(41, rank=rank, world_size=2) for rank in range(2)]
    all_batches = [BatchSampler(sampler, 10, drop_last, even) for sampler in made]
    lists = [list(batches) for batches in all_batches]
    batches = all_batches[0]
    for step in range(max(map(len, lists))):
        found = batches.explain(step)
        for rank in range(2):
            here = lists[rank][step] if step < len(lists[rank]) else []
            assert [one.sample for one in found if one.rank == rank] == here
            for place, sample in enumerate(here):
                assert [one[:3] for one in batches.when(sample)] == [(rank, step, place)]
    with pytest.raises(errors.OutOfRange):
        batches.explain(max(map(len, lists)))
    assert batches.when(40) == [] if drop_last else len(batches.when(40)) == 1
    assert [one.sample for one in made[1].explain(1)][:2] == [20, 22]
