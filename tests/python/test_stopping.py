"""Ranks that stop together."""

from __future__ import annotations

import math
import os
import signal
import threading
from typing import Any

import pytest
from conftest import FakeRanks

from shardwise import EarlyStop, StopGuard, errors, ranks


def test_early_stop_waits_for_an_improvement() -> None:
    stop = EarlyStop(patience=2, min_delta=0.1)
    figures = [0.5, 0.55, 0.7, math.nan, 0.79]
    assert [stop.should_stop(figure) for figure in figures] == [False, False, False, False, True]
    assert (stop.best, stop.num_since_best) == (0.7, 2)
    lower = EarlyStop(patience=1, lower_is_better=True)
    assert [lower.should_stop(figure) for figure in [3.0, 2.0, 2.0]] == [False, False, True]


def test_rank_0_decides_when_all_ranks_stop_early() -> None:
    def run(rank: ranks.Reducer) -> tuple[list[bool], float]:
        stop = EarlyStop(patience=2, ranks=rank)
        figures = [-1.0, -0.25, -0.25, -0.5]
        # The figures differ between ranks. Only rank 0's stop improving, and rank 0 decides for
        # all.
        own = [figure if rank.rank == 0 else float(i) for i, figure in enumerate(figures)]
        return [stop.should_stop(figure) for figure in own], stop.best

    assert FakeRanks(3).run(run) == [([False, False, False, True], -0.25)] * 3


def test_early_stop_goes_on_from_its_state() -> None:
    stop = EarlyStop(patience=3)
    assert not stop.should_stop(1.0) and not stop.should_stop(0.5)
    again = EarlyStop(patience=3)
    again.load_state_dict(stop.state_dict())
    assert not again.should_stop(0.5) and again.should_stop(0.5)


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("patience=0", lambda: EarlyStop(patience=0)),
        ("min_delta=nan", lambda: EarlyStop(min_delta=math.nan)),
        ("max_time=-1", lambda: StopGuard(max_time=-1)),
        ("every=0", lambda: StopGuard(every=0)),
        ("min_delta='a'", lambda: EarlyStop(min_delta="a")),  # type: ignore[arg-type]
        ("max_time=None", lambda: StopGuard(max_time=None)),  # type: ignore[arg-type]
        ("signals=15", lambda: StopGuard(signals=15)),  # type: ignore[arg-type]
        ("signals=.*SIGKILL", lambda: StopGuard(signals=[signal.SIGTERM, signal.SIGKILL])),
        ("state_dict={}", lambda: EarlyStop().load_state_dict({})),
        ("ranks=3", lambda: EarlyStop(ranks=3).should_stop(1.0)),  # type: ignore[arg-type]
    ],
)
def test_options_that_are_not_valid_are_named(what: str, make: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=what):
        make()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_stops_after_the_step(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopGuard(ranks=None) as guard:
        assert not guard.should_stop() and guard.reason == "" and guard.exit_code == 0
        os.kill(os.getpid(), number)
        assert guard.should_stop() and guard.should_stop()
    assert (guard.reason, guard.exit_code) == (number.name, 128 + number)
    assert signal.getsignal(number) is before


def test_a_second_signal_acts_as_without_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("shardwise.stopping.time.monotonic", lambda: now)
    with StopGuard(ranks=None), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        now = 100.5
        os.kill(os.getpid(), signal.SIGINT)  # a copy that a launcher forwards
        now = 101.5
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second signal did nothing")


def test_the_time_and_a_request_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("shardwise.stopping.time.monotonic", lambda: now)
    guard = StopGuard(max_time=10, ranks=None)
    now = 109.9
    assert not guard.should_stop()
    now = 110.0
    assert guard.should_stop() and (guard.reason, guard.exit_code) == ("the time is over", 0)
    asked = StopGuard(ranks=None)
    asked.request()
    assert asked.should_stop() and asked.reason == "a request"


@pytest.mark.parametrize("every", [1, 3])
def test_all_ranks_stop_after_the_step_in_which_one_is_asked(every: int) -> None:
    def run(rank: ranks.Reducer) -> tuple[int, str]:
        guard = StopGuard(ranks=rank, every=every)
        for step in range(100):
            if rank.rank == 1 and step == 7:
                guard.request()
            if guard.should_stop():
                return step, guard.reason
        return -1, ""

    assert FakeRanks(3).run(run) == [(7 if every == 1 else 8, "a request")] * 3


def test_a_flag_of_one_rank_is_true_on_all() -> None:
    def run(rank: ranks.Reducer) -> list[bool]:
        return [rank.any(rank.rank == step) for step in range(4)]

    assert FakeRanks(3).run(run) == [[True, True, True, False]] * 3


def test_a_guard_is_used_once_at_a_time() -> None:
    with StopGuard(ranks=None) as guard:
        with pytest.raises(errors.InvalidArgument, match="in use"):
            guard.__enter__()


def test_a_guard_that_cannot_catch_signals_leaves_their_handlers() -> None:
    raised: list[BaseException] = []

    def enter() -> None:
        try:
            StopGuard(ranks=None).__enter__()
        except errors.Unsupported as error:
            raised.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])


def test_handlers_that_python_does_not_know_become_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handlers: list[Any] = []

    def of_c(number: int, handler: Any) -> None:  # signal.signal() returns None for them
        handlers.append(handler)

    monkeypatch.setattr(signal, "signal", of_c)
    with StopGuard(signals=[signal.SIGUSR1], ranks=None):
        pass
    assert handlers[1:] == [signal.SIG_DFL]
