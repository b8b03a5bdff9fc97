"""The part of a report about a run: from statistics of Loaders, and from time lines."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import _core
from ..arguments import path_of
from ..errors import BadField, Error, InvalidArgument, Mismatch, NotFound
from .contents import shard_of
from .drawing import STAGES, Drawer, colour, stage_colour
from .page import card, cell, count, key, plain, seconds, section, table, tile

MAX_FILE_BYTES = 256 << 20
MAX_RANKS = 24
NUM_SLOWEST = 8
BINS = 60


class RankTimes(NamedTuple):
    """Where the time of a rank went, in seconds."""

    rank: int
    stages: list[float]  # of STAGES, then idle
    elapsed: float
    waited: float
    samples: int
    slowest: str  # "" if unknown


class Slow(NamedTuple):
    """Samples that took long to load."""

    time: float  # of one sample
    rank: int
    first_sample: int
    samples: int
    stage: str  # the longest


class Timeline(NamedTuple):
    """A trace of a rank: times by stage in equal parts of the run."""

    span: float
    parts: list[list[float]]  # by stage
    waits: list[float]  # of the consumer


def _parsed(path: str) -> Any:
    try:
        if os.path.getsize(path) > MAX_FILE_BYTES:
            raise BadField(
                f"the file is too large for a report: {path!r}; give a trace or stats of a Loader"
            )
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        raise NotFound(f"no such file: {path!r}; give a file that a Loader's run wrote") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, Error):
            raise
        raise BadField(
            f"not JSON: {path!r} ({plain(error)}); was the file copied completely?"
        ) from None


def _number(values: Mapping[str, Any], name: str, where: str) -> float:
    value = values.get(name, values.get(f"{name}_seconds", 0))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise BadField(
            f"{where}: {name} is not a number of seconds or samples; give stats of a Loader"
        )
    return value


def stats_of(given: Any, rank: int) -> RankTimes:
    """The times of a rank: of LoaderStats, a mapping, or a JSON file with one of them."""
    where = "stats"
    if isinstance(given, (str, os.PathLike)):
        where = path_of(given)
        given = _parsed(where)
    if hasattr(given, "_asdict"):
        given = given._asdict()
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"not statistics of a Loader: {where}; give loader.stats(), or a file with its fields"
        )
    stages = given.get("stages", given)
    if not isinstance(stages, Mapping) or not any(
        name in stages or f"{name}_seconds" in stages for name in STAGES
    ):
        raise InvalidArgument(
            f"no times of stages: {where}; give loader.stats()._asdict(), or `shardwise epoch --json`"
        )
    times = [_number(stages, name, where) for name in (*STAGES, "idle")]
    outer = given if stages is not given else stages
    elapsed = _number(outer, "elapsed", where) or (
        _number(outer, "seconds", where) if "stages" in given else 0
    )
    waited = _number(outer, "waited", where) or (
        _number(outer, "wait", where) if "stages" in given else 0
    )
    slowest = stages.get("slowest_sample", "")
    took = stages.get("slowest_time", stages.get("slowest_seconds", 0))
    if slowest and isinstance(took, (int, float)):
        slowest = f"{plain(slowest)}, {seconds(took)}"
    samples = int(_number(outer, "samples", where))
    return RankTimes(
        rank, times, elapsed, min(waited, elapsed), samples, str(slowest) if slowest else ""
    )


def _events_of(path: str) -> list[dict[str, Any]]:
    events = _parsed(path)
    if isinstance(events, dict):
        events = events.get("traceEvents")
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise BadField(
            f"not a trace of a Loader: {path!r}; give a file of loader.trace() or --trace"
        )
    found = [event for event in events if event.get("ph") == "X"]
    for event in found:
        details = event.setdefault("args", {})
        numbers = [event.get("ts"), event.get("dur")]
        if isinstance(details, dict):
            numbers += [
                value
                for name, value in details.items()
                if name.endswith(("_us", "sample", "samples"))
            ]
        is_valid = isinstance(details, dict) and all(
            isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18
            for value in numbers
        )
        if not is_valid:
            raise BadField(
                f"an event has no valid time or sample: {path!r}; give a file of loader.trace()"
            )
    if not any(event.get("name") in ("load samples", "wait for batch") for event in found):
        raise BadField(
            f"no events of a Loader: {path!r}; give a file of loader.trace(), of a run that read batches"
        )
    return found


def trace_of(given: Any, rank: int) -> tuple[RankTimes, Timeline, list[Slow]]:
    """The times of a rank, its time line and its slowest samples, from a trace."""
    events = _events_of(path_of(given))
    start = min(event["ts"] for event in events)
    span = max(event["ts"] + event["dur"] for event in events) - start or 1
    line = Timeline(span / 1e6, [[0.0] * BINS for _ in STAGES], [0.0] * BINS)
    stages, waited, samples, slow = [0.0] * (len(STAGES) + 1), 0.0, 0, []

    def add(bins: list[float], event: dict[str, Any], time: float) -> None:
        at = (event["ts"] - start) / span * BINS
        end = at + event["dur"] / span * BINS
        for i in range(int(at), min(int(end), BINS - 1) + 1):
            part = (min(end, i + 1) - max(at, i)) / (end - at) if end > at else 1
            bins[min(i, BINS - 1)] += max(part, 0) * time / 1e6

    for event in events:
        name, details = event.get("name"), event["args"]
        if name == "wait for batch":
            waited += event["dur"] / 1e6
            add(line.waits, event, event["dur"])
            continue
        if name == "load samples":
            times = {stage: details.get(f"{stage}_us", 0) for stage in STAGES}
            number = int(details.get("samples", 1)) or 1
            samples += number
            longest = max(times, key=lambda stage: times[stage])
            if "first_sample" in details:
                slow.append(
                    Slow(
                        event["dur"] / 1e6 / number,
                        rank,
                        int(details["first_sample"]),
                        number,
                        longest,
                    )
                )
        else:
            times = {"planning": event["dur"]} if name == "plan batch" else {}
            times |= {"collating": event["dur"]} if name == "collate batch" else {}
        for place, stage in enumerate(STAGES):
            if times.get(stage):
                stages[place] += times[stage] / 1e6
                add(line.parts[place], event, times[stage])
    elapsed = span / 1e6
    rank_times = RankTimes(rank, stages, elapsed, min(waited, elapsed), samples, "")
    return rank_times, line, heapq.nlargest(NUM_SLOWEST, slow)


def _ranks_card(ranks: list[RankTimes], draw: Drawer) -> list[str]:
    shown = ranks
    words = "Time of all threads by stage, summed over the run."
    if len(ranks) > MAX_RANKS:
        shown = sorted(heapq.nlargest(MAX_RANKS, ranks, key=lambda one: one.waited))
        words += f" {MAX_RANKS} of {count(len(ranks))} ranks: those that waited longest."

    def stages(axes: Any) -> None:
        left = [0.0] * len(shown)
        for place in range(len(STAGES) + 1):
            times = [one.stages[place] for one in shown]
            axes.barh(
                range(len(shown)), times, left=left, color=colour(stage_colour(place)), height=0.7
            )
            left = [a + b for a, b in zip(left, times)]
        _by_rank(axes, shown)

    def waits(axes: Any) -> None:
        axes.barh(
            range(len(shown)), [one.elapsed for one in shown], color=colour("pale"), height=0.7
        )
        axes.barh(
            range(len(shown)), [one.waited for one in shown], color=colour("peer"), height=0.7
        )
        _by_rank(axes, shown)

    names = [
        (name, stage_colour(i))
        for i, name in enumerate((*STAGES, "idle"))
        if any(one.stages[i] for one in shown)
    ]
    height = 60 + 24 * len(shown)
    rows = [
        [cell(one.rank), cell(one.samples, count(one.samples)), cell(one.elapsed, seconds(one.elapsed)),
         cell(one.waited, seconds(one.waited)), cell(one.waited / one.elapsed if one.elapsed else 0, f"{100 * one.waited / one.elapsed:.0f} %" if one.elapsed else "")]
        for one in shown
    ]  # fmt: skip
    head = ["rank", "samples", "time", "waited", ""]
    return [
        card("Time by stage and rank", words, draw.draw("Time by stage and rank", height, stages), key(names)),
        card(
            "Waiting", "Time of the training loop, and the part in which it waited for a batch.",
            draw.draw("Waiting by rank", height, waits), key([("waited", "peer"), ("other work", "pale")]), table(head, rows, "ranks"),
        ),
    ]  # fmt: skip


def _by_rank(axes: Any, shown: list[RankTimes]) -> None:
    axes.set_yticks(range(len(shown)), [f"rank {one.rank}" for one in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlabel("seconds")
    axes.grid(axis="x", linewidth=0.8)
    axes.set_axisbelow(True)


def _line_card(lines: list[Timeline], draw: Drawer) -> str:
    span = max(line.span for line in lines)

    def one(axes: Any) -> None:
        x = [(i + 0.5) * span / BINS for i in range(BINS)]
        width = span / BINS
        stacked = [[0.0] * BINS for _ in STAGES]
        waits = [0.0] * BINS
        for line in lines:  # lines of ranks begin together; shorter ones end earlier
            for i in range(BINS):
                at = min(int((i + 0.5) * line.span / span), BINS - 1)
                waits[at] += line.waits[i] / width / len(lines)
                for place in range(len(STAGES)):
                    stacked[place][at] += line.parts[place][i] / width / len(lines)
        used = [place for place in range(len(STAGES)) if any(stacked[place])]
        drawn = [stacked[place] for place in used]
        colours = [colour(stage_colour(place)) for place in used]
        if used:
            axes.stackplot(x, drawn, colors=colours, linewidth=0)
        axes.plot(x, waits, color=colour("text"), linewidth=1.5)
        axes.set_xlim(0, span)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("seconds")
        axes.set_ylabel("busy threads of a rank")
        axes.grid(axis="y", linewidth=0.8)

    names = [
        (name, stage_colour(i))
        for i, name in enumerate(STAGES)
        if any(any(line.parts[i]) for line in lines)
    ]
    words = "Threads at work by stage, mean of the ranks. The line is 1 where the training loop waits all the time."
    return card(
        "Over the run",
        words,
        draw.draw("Threads at work over the run", 240, one),
        key([*names, ("training loop waits", "text")]),
    )


def _picture(data: _core.Dataset, number: int) -> str:
    """The first picture of a sample, small; "" without one, or if it cannot be read."""
    import base64
    import io

    from PIL import Image  # matplotlib needs it, too

    sample = data[number]
    for field in sample.keys():  # noqa: SIM118 (a Sample is no dict)
        if _core.field_kind(field) != "image":
            continue
        try:
            image = Image.fromarray(_core.decode_image(sample[field]).squeeze())
        except (Error, ValueError, TypeError):
            return ""
        image.thumbnail((224, 224))
        file = io.BytesIO()
        image.save(file, "PNG")
        return (
            f'<img alt="" src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'
        )
    return ""


def _slowest_card(data: _core.Dataset, slow: list[Slow], with_pictures: bool) -> str:
    found = heapq.nlargest(NUM_SLOWEST, slow)
    beyond = [one for one in found if one.first_sample >= len(data)]
    if beyond:
        raise Mismatch(
            f"the trace has sample {beyond[0].first_sample}, but the data set has {len(data)} samples; give the "
            "index that the run read"
        )
    shards, starts = data.shards, data.shard_starts
    tiles = []
    for one in found:
        shard = shards[shard_of(starts, one.first_sample)].path
        name = plain(data.sample_keys([one.first_sample])[0])
        if one.samples > 1:
            name += f" and {count(one.samples - 1)} more"
        lines = [
            f"{seconds(one.time)}, most of it {one.stage}",
            f"rank {one.rank}, {_core.without_secrets(shard).split('/')[-1]}",
        ]
        picture = _picture(data, one.first_sample) if with_pictures else ""
        tiles.append(tile(name, one.first_sample, lines, picture))
    words = "By the trace; if a thread loaded several samples together, their mean."
    return card(
        "Slowest samples",
        words,
        f'<div class="tiles" id="slowest">{"".join(tiles)}</div>',
        wide=True,
    )


def run_section(
    data: _core.Dataset, stats: list[Any], traces: list[Any], with_pictures: bool, draw: Drawer
) -> str:
    """The section about a run; "" without statistics and traces."""
    if not stats and not traces:
        return ""
    traced = [trace_of(given, rank) for rank, given in enumerate(traces)]
    ranks = [stats_of(given, rank) for rank, given in enumerate(stats)] or [
        times for times, _, _ in traced
    ]
    cards = _ranks_card(ranks, draw)
    if traced:
        cards.append(_line_card([line for _, line, _ in traced], draw))
        cards.append(
            _slowest_card(data, [one for _, _, slow in traced for one in slow], with_pictures)
        )
    else:
        rows = [[cell(one.rank), cell(one.slowest)] for one in ranks if one.slowest]
        if rows:
            cards.append(
                card(
                    "Slowest samples",
                    "By the statistics of each rank.",
                    table(["rank", "sample"], rows, "slowest"),
                    wide=True,
                )
            )
    source = "its traces" if traced and not stats else "its statistics"
    return section(
        "The run", f"{count(len(ranks))} rank{'s' if len(ranks) > 1 else ''}, from {source}.", cards
    )
