"""Runs whose ranks stop together, after the same step.

with shardwise.StopGuard(max_time=8 * 3600) as guard:
    for epoch in loader.epochs(90):
        for batch in epoch:
            step(batch)
            if guard.should_stop():
                break
        if guard.reason:
            break
if guard.reason:
    save(loader.state_dict())
sys.exit(guard.exit_code)
"""

from __future__ import annotations

import math
import numbers
import signal
import struct
import threading
import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Union

from .arguments import refuse, suggests, whole_number
from .errors import InvalidArgument, Unsupported
from .ranks import Reducer, reducer_of

__all__ = ["EarlyStop", "StopGuard"]


@suggests
class EarlyStop:
    """Stops a run when a figure no longer improves.

    patience: figures without improvement before it stops. min_delta: the smallest change that
        counts as an improvement. NaN is no improvement.
    ranks: as for a Loader; looked up at the first figure. Rank 0's figure decides for all ranks, so
        no rank stops alone if figures differ in the last bit.

    >>> stop = shardwise.EarlyStop(patience=2, lower_is_better=True)
    >>> [stop.should_stop(loss) for loss in [0.9, 0.7, 0.8, 0.75]]
    [False, False, False, True]
    >>> stop.best, stop.num_since_best
    (0.7, 2)
    """

    def __init__(
        self,
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        lower_is_better: bool = False,
        ranks: Union[Reducer, str, None] = "auto",
    ) -> None:
        self.patience = whole_number("patience", patience)
        if self.patience == 0:
            refuse("patience", patience, "give 1 or more")
        if not _is_number(min_delta) or not min_delta >= 0:
            refuse("min_delta", min_delta, "give 0 or more")
        self.min_delta = min_delta
        self.lower_is_better = lower_is_better
        self._ranks = ranks
        self.best = math.inf if lower_is_better else -math.inf
        """The best figure so far."""
        self.num_since_best = 0
        """Figures since the best one."""

    def should_stop(self, figure: float) -> bool:
        """True if the run should stop after this figure. Every rank calls it, and all get the same
        answer. Cost: one small all-reduce."""
        self._ranks = reducer_of(self._ranks)
        own = struct.unpack("<q", struct.pack("<d", float(figure)))[0]
        word = self._ranks.all_reduce_sum([own if self._ranks.rank == 0 else 0])[0]
        agreed = struct.unpack("<d", struct.pack("<q", word))[0]
        gain = self.best - agreed if self.lower_is_better else agreed - self.best
        if gain > self.min_delta:
            self.best, self.num_since_best = agreed, 0
        else:
            self.num_since_best += 1
        return self.num_since_best >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The best figure, and the figures since, for a checkpoint."""
        return {"best": self.best, "num_since_best": self.num_since_best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues where state_dict() was called. Every rank gives the same."""
        try:
            best, num_since_best = float(state_dict["best"]), int(state_dict["num_since_best"])
        except (TypeError, KeyError, ValueError):
            refuse("state_dict", state_dict, "give the complete state_dict() of an EarlyStop")
        self.best, self.num_since_best = best, num_since_best


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real)


_UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)


def _signals_of(given: Any) -> tuple[signal.Signals, ...]:
    try:
        signals = tuple(signal.Signals(number) for number in given)
    except (TypeError, ValueError):
        signals = _UNCATCHABLE
    if any(number in _UNCATCHABLE for number in signals):
        refuse("signals", given, "give a list of signals that can be caught, e.g. signal.SIGTERM")
    return signals


@suggests
class StopGuard:
    """Makes all ranks of a run stop after the same step: on a signal, when the time is over, or on
    request. Use it in a ``with`` block.

    signals: signals on which all ranks stop, even if only one rank gets one. A second SIGINT or
        SIGTERM, more than a second after the first, acts as it would without the guard.
    max_time: seconds after which the ranks stop, counted from construction; 0 means never. The
        first rank whose time is over decides.
    ranks: as for a Loader; looked up at the first should_stop(). every: calls of should_stop() from
        one all-reduce to the next.

    Effects: the ``with`` block installs handlers for the signals, which only set flags, and
    restores the former ones at its end. A wait for a batch is not interrupted: the run stops after
    the step. Threads: the main thread; any thread may call request().
    """

    def __init__(
        self,
        *,
        signals: Sequence[int] = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1),
        max_time: float = 0.0,
        ranks: Union[Reducer, str, None] = "auto",
        every: int = 1,
    ) -> None:
        if not _is_number(max_time) or not max_time >= 0:
            refuse("max_time", max_time, "give seconds, or 0")
        self.signals = _signals_of(signals)
        self.every = whole_number("every", every)
        if self.every == 0:
            refuse("every", every, "give 1 or more")
        self._deadline = time.monotonic() + max_time if max_time > 0 else math.inf
        self._ranks = ranks
        self._calls = 0
        self._requested = False
        self._first: dict[int, float] = {}  # when each signal came
        self._former: dict[int, Any] = {}
        self.reason = ""
        """Why all ranks stop, e.g. "SIGTERM"; "" if they go on. Equal on all ranks."""
        self.exit_code = 0
        """128 plus the number of the signal on which the ranks stop, otherwise 0; for
        sys.exit()."""

    def __enter__(self) -> StopGuard:
        if self._former:
            raise InvalidArgument(
                "this StopGuard is already in use; make a StopGuard for each with block"
            )
        if threading.current_thread() is not threading.main_thread():
            raise Unsupported(
                "a StopGuard can catch signals only in the main thread; enter it there, and call "
                "request() from other threads"
            )
        for number in self.signals:
            self._former[number] = signal.signal(number, self._note) or signal.SIG_DFL
        return self

    def __exit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        trace: Union[TracebackType, None],
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        self._former = {}

    def _note(self, number: int, frame: Union[FrameType, None]) -> None:
        now = time.monotonic()
        first = self._first.setdefault(number, now)
        if number in (signal.SIGINT, signal.SIGTERM) and now > first + 1:
            signal.signal(number, self._former[number])
            signal.raise_signal(number)

    def request(self) -> None:
        """Asks all ranks to stop after a step. Any thread."""
        self._requested = True

    def should_stop(self) -> bool:
        """True once the ranks know that they stop; call it after each step. Every rank calls it
        equally often, and all get the same answer. Cost: one small all-reduce every ``every``
        calls."""
        self._calls += 1
        if self.reason or self._calls % self.every:
            return bool(self.reason)
        self._ranks = reducer_of(self._ranks)
        own = [number in self._first for number in self.signals]
        own += [time.monotonic() >= self._deadline, self._requested]
        wishes = self._ranks.all_reduce_sum([int(wish) for wish in own])
        names = [number.name for number in self.signals] + ["the time is over", "a request"]
        for place, wish in enumerate(wishes):
            if wish > 0:
                self.reason = names[place]
                self.exit_code = 128 + self.signals[place] if place < len(self.signals) else 0
                break
        return bool(self.reason)

    def __repr__(self) -> str:
        return f"<shardwise.StopGuard: {self.reason or 'no reason to stop'}>"
