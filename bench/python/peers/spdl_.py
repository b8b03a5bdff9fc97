"""SPDL: threads over files; FFmpeg decodes pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import spdl.io
from spdl.dataloader import DataLoader
from spdl.source import DistributedRandomSampler

from .base import BATCH, SEED, SIDE, WORKERS, Peer, Ranks, resized_crop
from .files import path_of, read_file, write_files


class _Paths:
    """The files of one rank. Each epoch has another order."""

    def __init__(self, folder: str, count: int, ranks: Ranks) -> None:
        self._folder = folder
        self._sampler = DistributedRandomSampler(
            count,
            rank=ranks.rank,
            world_size=ranks.world_size,
            seed=SEED,
            ddp_drop_last_distributed_round=False,
        )
        self._epoch = 0

    def __iter__(self) -> Iterator[str]:
        self._sampler.shuffle(SEED + self._epoch)
        self._epoch += 1
        return (path_of(self._folder, int(number)) for number in self._sampler)


def _decoded(path: str) -> Any:
    filters = spdl.io.get_video_filter_desc(pix_fmt="rgb24")
    return spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=filters)


def _cropped(path: str) -> Any:
    packets = spdl.io.demux_image(path)
    left, top, right, bottom = resized_crop(packets.width, packets.height)
    crop = f"crop={right - left}:{bottom - top}:{left}:{top}"
    scale = f"scale={SIDE}:{SIDE}:flags=bilinear,format=pix_fmts=rgb24"
    return spdl.io.decode_packets(packets, filter_desc=f"{crop},{scale}")


def _together(frames: list[Any]) -> Any:
    return numpy.asarray(spdl.io.to_numpy(spdl.io.convert_frames(frames)))


class Spdl(Peer):
    package = "spdl"
    settings = "one file a sample, spdl.dataloader.DataLoader, 2 threads"
    format = "files"
    without = {"item": "has pipelines, and no datasets", "resume": "a pipeline has no state"}

    def write(self) -> None:
        write_files(self.corpus, self.folder)

    def _loader(self, read: Any, aggregator: Any, ranks: Ranks, batch_size: int) -> Any:
        return DataLoader(
            _Paths(self.folder, self.corpus.num_samples, ranks),
            preprocessor=read,
            batch_size=batch_size,
            aggregator=aggregator,
            num_threads=WORKERS,
        )

    def epoch(self) -> Callable[[], Iterator[Any]]:
        loader = self._loader(read_file, None, Ranks(0, 1), BATCH)
        return lambda: iter(loader)

    def pictures(self, side: int) -> Callable[[], Iterator[Any]]:
        read = _cropped if side else _decoded
        loader = self._loader(read, _together, Ranks(0, 1), BATCH)
        return lambda: iter(loader)

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        loader = self._loader(read_file, None, ranks, batch_size)
        return (iter(loader) for _ in range(2))
