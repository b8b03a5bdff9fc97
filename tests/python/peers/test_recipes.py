"""The programs of examples/python: each is run whole, stopped in mid-epoch, and resumed as its page says."""

from __future__ import annotations

import importlib.util
import io
import json
import random
import re
import struct
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import needs, part_of
from peer_runs import launch

import shardwise

needs("torch")
Image = needs("PIL.Image")

NUM_SAMPLES = 211
"""Samples in the shards. Not divisible by any number of ranks or batch size of these tests."""


def write(path: Path, samples: list[dict[str, bytes]], first: int) -> None:
    with tarfile.open(path, "w") as tar:
        for i, sample in enumerate(samples, start=first):
            for field, data in sample.items():
                member = tarfile.TarInfo(f"{i:06}.{field}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def picture(dice: random.Random) -> bytes:
    stream = io.BytesIO()
    colour = tuple(dice.randrange(256) for _ in range(3))
    Image.new("RGB", (dice.randrange(70, 90), dice.randrange(70, 90)), colour).save(stream, "JPEG")
    return stream.getvalue()


def labelled(i: int, dice: random.Random) -> dict[str, bytes]:
    caption = f"picture {i}"
    facts = {"caption": caption, "width": 80, "height": 80 if i % 20 else 40}
    return {"jpg": picture(dice), "txt": caption.encode(), "json": json.dumps(facts).encode(),
            "cls": b"%d" % (i % 10)}


def document(i: int, dice: random.Random) -> dict[str, bytes]:
    count = dice.randrange(4, 60)
    return {"tokens": struct.pack(f"<{count}i", *(dice.randrange(256) for _ in range(count)))}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the indexes train, web, books and code."""
    folder = tmp_path_factory.mktemp("recipes")
    dice = random.Random(17)
    for name, make in {"train": labelled, "web": document, "books": document, "code": document}.items():
        samples = [make(i, dice) for i in range(NUM_SAMPLES)]
        for shard, first in enumerate(range(0, NUM_SAMPLES, 60)):
            write(folder / f"{name}-{shard}.tar", samples[first : first + 60], first)
        facts = ["json:$.width", "json:$.height"] if name == "train" else []
        shards = sorted(folder.glob(f"{name}-*.tar"))
        shardwise.index(folder / f"{name}.idx", shards, columns=facts, threads=1)
    return folder


class Recipe(NamedTuple):
    arguments: str
    stop_after: int
    ranks: int
    """Ranks of the resumed run; the first run has 2."""
    samples: int = NUM_SAMPLES
    """Samples of an epoch."""
    needs: str = "torch"


RECIPES = {
    "buckets": Recipe("train.idx", 10, 3),
    "accelerate_loop": Recipe("train.idx", 10, 3, needs="accelerate"),
    "clip": Recipe("train.idx", 10, 1),
    "dcp": Recipe("train.idx", 10, 3),
    "hf_trainer": Recipe("train.idx", 10, 2, needs="transformers"),
    "img2dataset": Recipe("train-0.tar train-1.tar train-2.tar train-3.tar", 10, 3, 200),
    "lightning_fit": Recipe("train.idx", 10, 2, needs="lightning"),
    "schedule": Recipe("train.idx train.idx --change 300 .1 .9", 10, 3, 2 * NUM_SAMPLES),
    "timm_train": Recipe("train.idx train.idx", 10, 1, needs="timm"),
    "tokens": Recipe("web.idx books.idx code.idx --weights .6 .3 .1", 10, 1, 3 * NUM_SAMPLES),
}


MIXED = {"tokens", "schedule"}
"""Recipes that read a mixture. Its epochs may deliver a sample of a data set several times, or not
at all."""


def run(recipe: str, ranks: int, folder: Path, seen: Path, *arguments: Any) -> str:
    """Runs a recipe on shards of a folder, and returns its output."""
    program = [str(Path(__file__).parent / "recipe_run.py")]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    if recipe == "lightning_fit":  # Lightning starts the ranks
        launcher = []
    code, said = launch(
        [*launcher, *program, *map(str, arguments)], folder, RECIPE=recipe, SEEN=str(seen)
    )
    assert code == 0, said
    return said


def counts_of(*prefixes: Path) -> dict[int, Counter[int]]:
    """Returns how often all ranks together were given each sample, by epoch."""
    counts: dict[int, Counter[int]] = {}
    for prefix in prefixes:
        for path in prefix.parent.glob(f"{prefix.name}-*.json"):
            for epoch, samples in json.loads(path.read_text()).items():
                counts.setdefault(int(epoch), Counter()).update(samples)
    return counts


@pytest.mark.parametrize("name", part_of(RECIPES, 3))
def test_a_recipe_continues_where_it_was_stopped(name: str, data: Path, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    if importlib.util.find_spec(recipe.needs) is None:
        pytest.skip(f"needs {recipe.needs}; skipped because it is not installed")
    arguments = [*recipe.arguments.split(), "--out", tmp_path / "run"]
    first, rest = tmp_path / "first", tmp_path / "rest"
    run(name, 2, data, first, *arguments, "--stop-after", recipe.stop_after)
    said = run(name, recipe.ranks, data, rest, *arguments, "--resume")

    before = sum(sum(count.values()) for count in counts_of(first).values())
    counts = counts_of(first, rest)
    assert 0 < before and sorted(counts) == [0, 1]
    assert sorted(set(re.findall(r"epoch (\d): .*proven", said))) == [
        str(epoch) for epoch in range(before // recipe.samples, 2)
    ]
    for count in counts.values():
        assert abs(sum(count.values()) - recipe.samples) <= (name == "clip")  # clip may drop a rest
        assert name in MIXED or set(count.values()) == {1}
    if name in MIXED:  # each document of a corpus comes before any comes again
        for first_number in range(0, recipe.samples, NUM_SAMPLES):
            numbers = range(first_number, first_number + NUM_SAMPLES)
            times = [counts[0][number] + counts[1][number] for number in numbers]
            assert max(times) - min(times) <= (1 if name == "tokens" else 2)


def test_the_weights_of_a_schedule_change_when_it_resumes(data: Path, tmp_path: Path) -> None:
    arguments = ["train.idx", "train.idx", "--out", tmp_path / "run"]
    first, rest = tmp_path / "first", tmp_path / "rest"
    run("schedule", 2, data, first, *arguments, "--weights", 1, 0, "--stop-after", 10)
    said = run("schedule", 3, data, rest, *arguments, "--weights", 0, 1, "--resume")
    counts = counts_of(first, rest)
    both = counts[0] + counts[1]
    told = re.findall(r"data set \d: (\d+) passes and (\d+) of 211 samples", said)[-2:]
    for part, (passes, remainder) in enumerate(told):
        times = [both[number] for number in range(part * NUM_SAMPLES, (part + 1) * NUM_SAMPLES)]
        assert sum(times) == int(passes) * NUM_SAMPLES + int(remainder) > 0
        assert max(times) - min(times) <= 2
    assert sum(both[number] for number in range(NUM_SAMPLES)) == 512  # a whole number of blocks


@pytest.mark.parametrize("name", part_of(["buckets", "img2dataset", "schedule"], 1))
def test_a_recipe_runs_in_an_empty_folder(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow; skipped because it is not installed")
    program = Path(__file__).parents[3] / "examples" / "python" / f"{name}.py"
    code, said = launch([str(program), "--out", "run"], tmp_path)
    assert code == 0, said
    assert re.findall(r"epoch (\d): .*proven", said) == ["0", "1"]
    if name == "img2dataset":
        assert "24 of 240 pictures were not downloaded" in said


def test_the_evaluation_is_the_same_on_any_number_of_ranks(data: Path, tmp_path: Path) -> None:
    said = {run("evaluate", ranks, data, tmp_path / f"{ranks}", "train.idx") for ranks in (1, 2, 7)}
    lines = {re.search(r"\d+ of 211 correct; .*proven", text)[0] for text in said}  # type: ignore[index]
    assert len(lines) == 1, lines
