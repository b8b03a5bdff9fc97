"""Several pipelines as one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from .base import Items


class RoundRobin(Items):
    """Yields an item from each dataset in turn, until the first one ends. longest: until all
    end."""

    def __init__(self, datasets: Sequence[Any], longest: bool = False) -> None:
        super().__init__()
        self.datasets, self.longest = datasets, longest

    def __iter__(self) -> Iterator[Any]:
        sources = [iter(dataset) for dataset in self.datasets]
        while sources:
            for source in list(sources):
                try:
                    item = next(source)
                except StopIteration:
                    if not self.longest:
                        return
                    sources.remove(source)
                    continue
                yield item


class RandomMix(Items):
    """Draws from each dataset with its probability, until a drawn one has ended. longest: until
    all end. The module random makes the draws. For exact epochs and a state, use
    shardwise.mix([...], weights) and a shardwise.Loader."""

    def __init__(
        self, datasets: Sequence[Any], probs: Sequence[float] | None = None, longest: bool = False
    ) -> None:
        super().__init__()
        self.datasets, self.probs, self.longest = datasets, probs, longest

    def __iter__(self) -> Iterator[Any]:
        sources = [iter(dataset) for dataset in self.datasets]
        probs = [1.0] * len(sources) if self.probs is None else list(self.probs)
        while sources:
            (drawn,) = random.choices(range(len(sources)), probs)
            try:
                item = next(sources[drawn])
            except StopIteration:
                if not self.longest:
                    return
                del sources[drawn], probs[drawn]
                if not any(probs):  # only datasets of probability 0 are left
                    probs = [1.0] * len(probs)
                continue
            yield item


__all__ = ["RandomMix", "RoundRobin"]
