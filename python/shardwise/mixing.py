"""Several data sets as one: mix(), and what a run has read of each: progress_of()."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from types import FrameType
from typing import Any, Union

from . import _core
from .arguments import refuse, require, suggests, whole_number
from .errors import InvalidArgument, OutOfRange
from .records import DataProgress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .decoded import DecodedDataset


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _weights(name: str, weights: Sequence[float]) -> tuple[float, ...]:
    """Returns the weights as floats. Raises InvalidArgument, which names the option."""
    try:
        if isinstance(weights, (str, bytes, Mapping, Set)):  # a str, or no order
            raise TypeError
        return tuple(float(weight) for weight in weights)
    except (TypeError, ValueError, OverflowError):
        refuse(name, weights, "give a list with a number for each data set")


def _schedule(
    schedule: Union[Mapping[int, Sequence[float]], None],
) -> dict[int, tuple[float, ...]]:
    """Returns the schedule's weights by position, ascending. Raises InvalidArgument."""
    if schedule is None:
        return {}
    if not isinstance(schedule, Mapping):
        refuse("schedule", schedule, "give a dict of weights by position: {1_000_000: [0.5, 0.5]}")
    weights = {
        whole_number("schedule", position): _weights("schedule", schedule[position])
        for position in schedule
    }
    return dict(sorted(weights.items()))


class MixedDataset:
    """Several data sets numbered one after another. Loaders and samplers of shardwise draw from
    them by their weights.

    ``mixed[i]`` is sample i of all, and its ``number`` is i; numbers of data set d begin at
    ``first_samples[d]``. A sample's ``index`` is its number in its data set. With weights, samplers
    of torch are refused: they would draw by the sizes of the data sets. A Subset or ConcatDataset
    of torch, or random_split(), would hide the weights from torch's samplers; mix views of data
    sets instead.
    """

    def __init__(
        self,
        datasets: Sequence[_core.Dataset],
        weights: Union[Sequence[float], None] = None,
        schedule: Union[Mapping[int, Sequence[float]], None] = None,
    ) -> None:
        if isinstance(datasets, _core.Dataset) or not isinstance(datasets, Sequence):
            refuse("datasets", datasets, "give a list of shardwise.Dataset")
        for dataset in datasets:
            require("datasets", dataset, _core.Dataset, "give each as a shardwise.Dataset")
        self.datasets = tuple(datasets)
        self.weights = None if weights is None else _weights("weights", weights)
        if not self.datasets:
            raise InvalidArgument(
                "not valid: datasets=[]; give mix() at least one shardwise.Dataset"
            )
        self.schedule = _schedule(schedule)
        if self.schedule and self.weights is None:
            refuse("schedule", schedule, "give the weights from the beginning, too: weights=[...]")
        given = () if self.weights is None else (self.weights, *self.schedule.values())
        for one in given:
            if len(one) != len(self.datasets):
                raise InvalidArgument(
                    f"{_counted(len(one), 'weight')} for "
                    f"{_counted(len(self.datasets), 'data set')}; give one weight for each data set"
                )
        starts = [0]
        for dataset in self.datasets:
            starts.append(starts[-1] + len(dataset))
        self.first_samples = tuple(starts[:-1])
        self._size = starts[-1]

    def __len__(self) -> int:
        if self.weights is not None and "torch.utils.data" in sys.modules:
            _refuse_samplers(sys._getframe(1))
        return self._size

    def __getitem__(self, number: int) -> _core.Sample:
        place = _core.index_of(number)
        if place < 0:
            place += self._size
        if not 0 <= place < self._size:
            raise OutOfRange(
                f"no such sample: sample {number}; give a number below {self._size}, the number of samples"
            )
        part = bisect_right(self.first_samples, place) - 1
        sample: Any = self.datasets[part][place - self.first_samples[part]]
        numbered: _core.Sample = sample._numbered(place)
        return numbered

    def decoded(
        self, columns: Union[Iterable[_core.Column], None] = None, *, seed: int = 0
    ) -> DecodedDataset:
        """These samples decoded, for torch's DataLoader; see Dataset.decoded()."""
        from .decoded import DecodedDataset

        return DecodedDataset(self, columns, seed=seed)

    def __repr__(self) -> str:
        shown = "" if self.weights is None else f", weights {list(self.weights)}"
        for position, weights in self.schedule.items():
            shown += f", from position {position} {list(weights)}"
        return f"<shardwise.MixedDataset of {len(self.datasets)} data sets{shown}>"


def _refuse_samplers(frame: Union[FrameType, None]) -> None:
    """Raises InvalidArgument if a torch sampler asks for len() of a mix() with weights, directly or
    through data sets around it: the sampler would silently ignore the weights."""
    for _ in range(4):
        if frame is None:
            return
        caller = frame.f_locals.get("self")
        if isinstance(caller, sys.modules["torch.utils.data"].Sampler):
            raise InvalidArgument(
                f"a {type(caller).__name__} ignores the weights of a mix(); give the DataLoader a "
                "sampler= or batch_sampler= of shardwise.torch over the mix() itself, or mix "
                "without weights"
            )
        frame = frame.f_back


def refuse_hidden_weights(data: object) -> None:
    """Raises InvalidArgument if the data of a sampler contains a mix() with weights: the sampler
    would see the mix's length and ignore its weights."""
    for held in getattr(data, "__dict__", {}).values():
        for one in held if isinstance(held, (list, tuple)) else (held,):
            if isinstance(one, MixedDataset) and one.weights is not None:
                raise InvalidArgument(
                    f"a {type(data).__name__} hides the weights of its mix(); give the sampler "
                    "the mix(), and your own data set only to the DataLoader"
                )


@suggests
def mix(
    datasets: Sequence[_core.Dataset],
    weights: Union[Sequence[float], None] = None,
    schedule: Union[Mapping[int, Sequence[float]], None] = None,
) -> MixedDataset:
    """Several data sets, for a Loader, a Sampler, or the samplers of shardwise.torch.

    weights: relative frequencies of draws from each data set; only ratios count. The draws from a
        data set go through exact epochs of that data set, in the order's kind (chunked, sharded or
        sequential). Draws are shuffled within blocks of 256, so a sample may come before the epoch
        of its data set begins, and samples of small data sets come again soon. None means: one
        after another, ordered as if they were one data set.
    schedule: other weights from later positions of the run on, as {position: weights}. Positions
        count the samples of all ranks and epochs, and are rounded up to a multiple of 256. Each
        data set continues where it was, so no sample of its pass is lost or repeated. Weights may
        also change when a run resumes: see Loader.load_state_dict(allow_changes=True).

    >>> ds = shardwise.open("train.idx")
    >>> both = shardwise.mix([ds[:10], ds[50:]], weights=[0.8, 0.2])
    >>> len(both), both.first_samples, both[10].key, both[10].number
    (360, (0, 10), '000050', 10)
    >>> shardwise.mix([ds[:10], ds[50:]], weights=[0.8, 0.2], schedule={100_000: [0.5, 0.5]})
    <shardwise.MixedDataset of 2 data sets, weights [0.8, 0.2], from position 100000 [0.5, 0.5]>
    """
    return MixedDataset(datasets, weights, schedule)


@suggests
def progress_of(state: Union[str, Mapping[str, Any]]) -> list[DataProgress]:
    """Counts what a run has read of each data set, up to a state of a Loader or a resume token.

    state: a state_dict() of a Loader, or the text of a token. The result has one element for each
        data set of a mix() with weights, and one for an order of one data set. It is empty for
        "resampled" and "wids", which have no passes. In a mix, passes are exact at multiples of 256
        positions of the run; elsewhere, up to 255 samples of a data set's next pass may have been
        read before the last of this pass.

    >>> ds = shardwise.open("train.idx")
    >>> both = shardwise.mix([ds[:10], ds[50:]], weights=[0.8, 0.2])
    >>> token = shardwise.Sampler(both, batch_size=256).token(1)
    >>> for data in shardwise.progress_of(token):
    ...     print(data.samples, data.passes, data.remainder)
    205 20 5
    51 0 51
    """
    token = state.get("token") if isinstance(state, Mapping) else state
    if not isinstance(token, str):
        refuse("state", state, "give a state_dict() of a Loader, or the text of a token")
    return [DataProgress(*read) for read in _core.progress_of(token)]
