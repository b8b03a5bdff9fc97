"""The base of all peers: the samples, and the tasks of a peer."""

from __future__ import annotations

import fcntl
import importlib.metadata
import io
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

BATCH = 64
WORKERS = 2
SIDE = 224
SEED = 17


class Corpus(NamedTuple):
    """Samples in tars, of which one field is used, and a label if it is named. Also the folder for
    the same samples in other formats."""

    name: str
    tars: list[str]
    lengths: list[int]
    field: str
    folder: str
    label: str = ""

    @property
    def num_samples(self) -> int:
        return sum(self.lengths)

    def samples(self) -> Iterator[bytes]:
        """Yields each sample's field, in order."""
        return (record["data"] for record in self.records())

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields each sample as it is written in other formats: "data", and "label" if named."""
        import shardwise

        for sample in shardwise.open(self.tars):
            yield self.record(sample)

    def record(self, sample: Any) -> dict[str, Any]:
        label = {"label": sample.integer(self.label)} if self.label else {}
        return {"data": sample.bytes(self.field)} | label


class Ranks(NamedTuple):
    rank: int
    world_size: int


class Source(NamedTuple):
    """A bucket that has the folder of the corpus, and an empty folder for a package's cache. The
    tars are in its folder `shards`."""

    server: str
    bucket: str
    cache: str

    def http(self, name: str) -> str:
        return f"{self.server}/{self.bucket}/{name}"

    def s3(self, name: str) -> str:
        return f"s3://{self.bucket}/{name}"


class Peer:
    """A package, used as its documentation recommends. Features that it lacks keep the values
    below.

    epoch() and pictures() return a function. Each call of it goes through the next epoch, batch by
    batch. The epochs share their workers if the package can keep them. """

    package = ""
    """The package whose version the report shows."""
    settings = ""
    """The settings with which the package is used, in a few words."""
    remote_settings = ""
    """The same for remote()."""
    format = ""
    """The folder for samples in the package's own format; empty if the package reads tars."""
    needs_group = False
    """True if the package takes the ranks from torch.distributed."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.folder = os.path.join(corpus.folder, self.format)

    @classmethod
    def version(cls) -> str:
        return importlib.metadata.version(cls.package)

    def write(self) -> None:
        """Writes the samples in the package's format to its folder, which is empty."""

    def prepare(self) -> None:
        """Writes the samples unless they exist. Packages may share a format."""
        done = os.path.join(self.folder, "complete")
        if not self.format:
            return
        with open(f"{self.folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(done):
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            os.makedirs(self.folder)
            self.write()
            with open(done, "w"):
                pass

    def rows(self, batch: Any) -> list[Any]:
        """Returns the bytes, or the picture, of each sample of a batch."""
        return list(batch)

    def tally(self, batch: Any) -> tuple[int, int]:
        """Returns the number of samples in a batch of bytes, and their bytes. Must be fast."""
        return len(batch), sum(map(len, batch))

    def labels(self, batch: Any) -> list[int]:
        """Returns the labels of a batch of remote()."""
        labels: list[int] = batch[1].tolist()
        return labels

    # The measured tasks. None means that the package cannot do the task; `without` says why.
    without: dict[str, str] = {}
    epoch: Callable[[], Callable[[], Iterator[Any]]] | None = None
    pictures: Callable[[int], Callable[[], Iterator[Any]]] | None = None
    """Called with the side of the random resized crop; 0 means whole pictures."""
    remote: Callable[[Source], Callable[[], Iterator[Any]]] | None = None
    """Epochs of random resized crops of SIDE pixels and labels, from a server with a cache."""
    item: Callable[[], Callable[[int], Any]] | None = None
    resumable: Callable[[], Resumable] | None = None
    deliver: Callable[[Ranks, int], Iterator[Iterator[Any]]] | None = None
    """Called with the ranks and the batch size. Yields the epochs, each as the batches of this
    rank."""


class Resumable:
    """A loader within an epoch, with state_dict() and load_state_dict()."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._loader = make()

    def batches(self) -> Iterator[Any]:
        """Returns the epoch's batches, from the beginning."""
        return iter(self._loader)

    def state(self) -> Any:
        """Returns the state after the batches taken so far."""
        return self._loader.state_dict()

    def close(self) -> None:
        """Releases resources that a new loader needs."""
        del self._loader

    def resumed(self, state: Any) -> Iterator[Any]:
        """Returns the batches that a new loader delivers after that state."""
        loader = self._make()
        loader.load_state_dict(state)
        return iter(loader)


def resized_crop(width: int, height: int) -> tuple[float, float, float, float]:
    """Draws a box like torchvision's RandomResizedCrop: left, top, right, bottom."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def picture(data: bytes, side: int) -> Any:
    """Decodes to uint8 [H, W, 3] with Pillow, as the packages' own decoders do."""
    import numpy
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    if side:
        box = resized_crop(*image.size)
        image = image.resize((side, side), Image.Resampling.BILINEAR, box=box)
    return numpy.array(image)
