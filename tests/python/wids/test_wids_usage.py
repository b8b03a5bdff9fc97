"""How programs use wids: patterns from public code, rewritten."""

from __future__ import annotations

import io
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from conftest import needs
import shardwise.wids as wids
from wids_support import own_folders, shards, write_descriptor, write_tar  # noqa: F401


class Captions(wids.ShardListDataset[tuple[bytes, int]]):
    """A subclass that forwards its keyword arguments, and returns other items."""

    def __init__(self, scale: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        sample: Any = super().__getitem__(index)
        return sample[".bin"].read(), sample[".cls"] * self.scale


def test_a_subclass_with_keyword_arguments(shards: list[Any]) -> None:
    dataset = Captions(scale=10, shards=shards, lru_size=20, transformations="PIL")
    assert dataset[3] == (bytes([3]) * 4, 30)
    assert sum(label for _, label in dataset) == 2100


def by_shard(self: Any, index: int) -> Any:
    shard, inner, desc = self.get_shard(index)
    sample = shard[inner]
    sample["__shard__"] = desc["url"]
    for transform in self.transformations:
        sample = transform(sample)
    return sample


def test_a_subclass_that_reads_shards_itself(shards: list[Any]) -> None:
    """A subclass with its own __getitem__, which calls get_shard() and the transformations."""
    kind = type("Own", (wids.ShardListDataset,), {"__getitem__": by_shard})
    sample = kind(shards)[8]
    assert sample[".cls"] == 8 and sample["__shard__"] == shards[1]["url"]


def test_videos_are_read_from_streams(tmp_path: Path) -> None:
    """With transformations=[], fields are streams, which a program gives to its own decoder."""
    path = write_tar(tmp_path / "v.tar", [("a.mp4", b"\0ftyp"), ("a.json", b'{"fps": 8}')])
    dataset: Any = wids.ShardListDataset([{"url": str(path), "nsamples": 1}], transformations=[])
    sample = dataset[0]
    assert isinstance(sample[".mp4"], io.BytesIO)
    assert sample[".mp4"].read(2) == b"\0f" and sample[".mp4"].seek(0) == 0
    assert sample[".mp4"].getbuffer().nbytes == 5
    assert bytes(sample[".json"].getvalue()) == b'{"fps": 8}'


def test_the_paths_of_sidecars_are_made_of_that_of_the_shard(shards: list[Any]) -> None:
    """"__shard__" with another extension, and cached content of the files beside the shard."""
    sidecar = Path(shards[1]["url"].replace(".tar", "-captions.json"))
    sidecar.write_text("beside")
    read = lru_cache(maxsize=16)(lambda path: Path(path).read_text())
    sample: Any = wids.ShardListDataset(shards)[8]
    assert read(sample["__shard__"].replace(".tar", "-captions.json")) == "beside"
    assert "/".join(sample["__shard__"].rsplit("/", 2)[-2:]) == "shards/train-001.tar"
    assert (sample["__index__"], sample["__shardindex__"]) == (8, 1)


def test_attributes_are_looked_at(shards: list[Any], tmp_path: Path) -> None:
    """Attributes that programs print or compute with."""
    path = write_descriptor(tmp_path / "shards" / "meta.json", shards, name="meta")
    dataset: Any = wids.ShardListDataset(str(path), lru_size=5)
    assert sum(shard["nsamples"] for shard in dataset.shards) == dataset.total_length
    assert max(dataset.lengths) == 9
    assert dataset.spec["wids_version"] == 1 and dataset.dataset_name == "meta"
    assert dataset.base == str(tmp_path / "shards")
    assert callable(dataset.transformations[0]) and dataset.cache.lru.capacity == 5
    ranges = wids.ShardedSampler(dataset, lengths=dataset.lengths).ranges
    assert ranges[-1][1] == len(dataset)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_data_loader_of_torch(shards: list[Any], num_workers: int, start: str) -> None:
    """DataLoader with a sampler and workers, and ConcatDataset with ChunkedSampler."""
    torch_data = needs("torch.utils.data")
    dataset: Any = wids.ShardListDataset(shards, transformations=[label])
    both = torch_data.ConcatDataset([dataset, dataset])
    sampler = wids.ChunkedSampler(both, chunksize=5, shuffle=True)
    expected = list(sampler)
    sampler.set_epoch(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = torch_data.DataLoader(
            both,
            batch_size=4,
            sampler=sampler,
            num_workers=num_workers,
            multiprocessing_context=start if num_workers else None,
        )
        got = [int(x) for batch in loader for x in batch]
    assert got == [number % 21 for number in expected]
    assert len(loader) == 11


def label(sample: dict[str, Any]) -> int:
    return int(sample[".cls"].read())
