"""The part of a report about the order of the samples, and what caches fetch in it."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from ..building import plan
from ..errors import Unsupported
from ..records import FetchPlan
from .contents import Classes, shard_of
from .drawing import Drawer, byte_ticks, colour, dots
from .page import card, cell, count, key, section, size, table

MAX_DOTS = 1500
MAX_BATCHES = 100
MAX_LOADS = 4_000_000  # that all plans of a picture simulate
PLANS = (2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 100)
FEW_PLANS = (5, 10, 25, 50, 75, 100)
LAST_PLANS = (50, 100)  # if each plan takes many seconds


class Run(NamedTuple):
    """The ranks, batches and epochs of the run that a report is about."""

    order: _core.Order
    world_size: int
    batch_size: int
    nodes: int
    epoch: int
    epochs: int

    def sampler(
        self, data: Any, order: _core.Order, rank: int = 0, world_size: int = 0
    ) -> _core.Sampler:
        """A sampler at the run's first epoch; by default of a rank of the run."""
        world_size = world_size or self.world_size
        made = _core.Sampler(
            data, order, rank=rank, world_size=world_size, batch_size=self.batch_size
        )
        made.set_epoch(self.epoch)
        return made


def _evenly(total: int, most: int) -> list[int]:
    """At most this number of numbers below ``total``, at equal distances."""
    taken = min(total, most)
    return [i * total // taken for i in range(taken)]


def _full_shuffle(data: _core.Dataset, run: Run) -> _core.Order:
    return _core.Order("chunked", seed=run.order.seed, chunk_size=1, window=len(data))


def _positions_card(data: _core.Dataset, run: Run, draw: Drawer) -> str:
    found = []
    for order in (run.order, _full_shuffle(data, run)):
        sampler = run.sampler(data, order, world_size=1)
        places = _evenly(len(sampler), MAX_DOTS)
        found.append(
            (
                [100 * i / max(len(sampler), 1) for i in places],
                [100 * sampler[i] / len(data) for i in places],
            )
        )

    def both(axes: Any) -> None:
        for panel, (x, y), title, name in zip(
            axes, found, ("this order", "full shuffle"), ("ours", "peer")
        ):
            dots(panel, x, y, name)
            panel.set_xlim(-1, 101)
            panel.set_ylim(-1, 101)
            panel.set_aspect("equal")
            panel.set_title(title, fontsize=12)
            panel.set_xlabel("epoch, %")
            panel.set_xticks([0, 50, 100])
            panel.set_yticks([0, 50, 100])
        axes[0].set_ylabel("index, %")

    words = "Position of samples in the index against their position in the epoch."
    if len(found[0][0]) < len(data):
        words += f" {count(len(found[0][0]))} of {count(len(data))} positions are drawn, at equal distances."
    return card(
        "This order beside a full shuffle",
        words,
        draw.draw("Index position against epoch position", 205, both, 2),
    )


class _Batches(NamedTuple):
    at: list[float]  # positions in the epoch, in %
    shards: list[int]  # different shards of each batch
    classes: list[int]  # different classes of each batch; empty if unknown


def _batches(
    data: _core.Dataset, run: Run, order: _core.Order, classes: Classes | None, most: int
) -> _Batches:
    starts = data.shard_starts
    samplers: dict[int, _core.Sampler] = {}
    steps = run.sampler(data, order).steps
    found = _Batches([], [], [])
    for i, step in enumerate(_evenly(steps, most)):
        rank = i % run.world_size
        if rank not in samplers:
            samplers[rank] = run.sampler(data, order, rank)
        sampler = samplers[rank]
        end = min(len(sampler), (step + 1) * run.batch_size)
        numbers = [sampler[place] for place in range(step * run.batch_size, end)]
        if not numbers:
            continue
        found.at.append(100 * step / max(steps, 1))
        found.shards.append(len({shard_of(starts, number) for number in numbers}))
        if classes is not None:
            found.classes.append(len(set(classes.of(numbers))))
    return found


def _batches_cards(
    data: _core.Dataset, run: Run, classes: Classes | None, draw: Drawer
) -> list[str]:
    most = MAX_BATCHES
    if classes is not None:
        most = max(4, min(most, classes.max_samples // (2 * run.batch_size)))
    ours = _batches(data, run, run.order, classes, most)
    theirs = _batches(data, run, _full_shuffle(data, run), classes, most)
    kinds = [("Classes of a batch", "classes", ours.classes, theirs.classes)] if classes else []
    kinds.append(("Shards of a batch", "shards", ours.shards, theirs.shards))
    cards = []
    for title, name, mine, full_values in kinds:

        def one(
            axes: Any,
            mine: list[int] = mine,
            full_values: list[int] = full_values,
            name: str = name,
        ) -> None:
            from matplotlib.ticker import MaxNLocator

            for batches, values, drawn in ((theirs, full_values, "peer"), (ours, mine, "ours")):
                axes.plot(
                    batches.at, values, "o", color=colour(drawn), markersize=3.5, markeredgewidth=0
                )
            axes.set_ylim(0, max([*mine, *full_values, 1]) * 1.1)
            axes.set_xlim(-1, 101)
            axes.set_xlabel("epoch, %")
            axes.set_ylabel(f"{name} of a batch")
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.grid(axis="y", linewidth=0.8)
            axes.set_axisbelow(True)

        rows = [
            [
                cell(label),
                cell(min(values)),
                cell(sum(values) / len(values), f"{sum(values) / len(values):.1f}"),
                cell(max(values)),
            ]
            for label, values in (("this order", mine), ("full shuffle", full_values))
        ]
        words = f"Different {name} in batches of {count(run.batch_size)} of one rank; {count(len(mine))} batches of the epoch."
        legend = key([("this order", "ours"), ("full shuffle", "peer")])
        head = ["", "fewest", "mean", "most"]
        cards.append(
            card(
                title,
                words,
                draw.draw(title, 220, one),
                legend,
                table(head, rows, f"{name}-of-a-batch"),
            )
        )
    return cards


def order_section(data: _core.Dataset, run: Run, classes: Classes | None, draw: Drawer) -> str:
    """The section about the order."""
    options = ", ".join(
        f"{name}={value!r}"
        for name, value in run.order.options.items()
        if name not in ("kind", "skip")
    )
    words = (
        f"{run.order.kind}, {options}; epoch {run.epoch}; {count(run.world_size)} "
        f"rank{'s' if run.world_size > 1 else ''}, batches of {count(run.batch_size)}."
    )
    return section(
        "The order",
        words,
        [_positions_card(data, run, draw), *_batches_cards(data, run, classes, draw)],
    )


def _planned(data: _core.Dataset, run: Run, cache_bytes: int) -> FetchPlan:
    return plan(
        data, run.order, nodes=run.nodes, cache_bytes=max(cache_bytes, 1), world_size=run.world_size,
        batch_size=run.batch_size, epochs=run.epochs, first_epoch=run.epoch,
    )  # fmt: skip


def _refetched(made: FetchPlan) -> tuple[float, float]:
    """Bytes that all nodes fetch in an epoch by LRU and by next use: the mean of the epochs after
    the first, or that of the only epoch."""
    epochs = made.epochs[1:] or made.epochs
    return (
        sum(epoch.lru.bytes_fetched for epoch in epochs) / len(epochs),
        sum(epoch.next_use.bytes_fetched for epoch in epochs) / len(epochs),
    )


def plan_section(data: _core.Dataset, run: Run, draw: Drawer) -> str:
    """The section about caches."""
    title = "The cache"
    try:
        whole = _planned(data, run, data.info.shard_bytes)
    except Unsupported as error:
        return section(title, f"No plan: {error}", [])
    loads = sum(epoch.next_use.uses for epoch in whole.epochs)
    percents = next(
        (few for few in (PLANS, FEW_PLANS) if loads * len(few) <= MAX_LOADS), LAST_PLANS
    )
    total = whole.total_bytes
    thresholds = [
        ("each shard once per epoch", whole.bytes_for_once_an_epoch, "good"),
        ("nothing twice", whole.bytes_for_once, "warn"),
    ]
    sizes = sorted(
        {total * percent // 100 for percent in percents} | {at for _, at, _ in thresholds}
    )
    points = [(cache, *_refetched(_planned(data, run, cache))) for cache in sizes]

    def one(axes: Any) -> None:
        for place, name in ((1, "peer"), (2, "ours")):
            axes.plot(
                [p[0] for p in points], [p[place] for p in points], color=colour(name), linewidth=2
            )
        for style, (_, at, name) in zip(("--", ":"), thresholds):
            axes.axvline(at, color=colour(name), linestyle=style, linewidth=1.8)
        highest = max(max(p[1:]) for p in points) or 1
        byte_ticks(axes.xaxis, max(sizes), 4)
        byte_ticks(axes.yaxis, highest, 5)
        axes.set_xlim(0, max(sizes) * 1.02)
        axes.set_ylim(0, highest * 1.05)
        axes.set_xlabel("cache of a node")
        axes.set_ylabel("fetched in an epoch")
        axes.grid(linewidth=0.8)
        axes.set_axisbelow(True)

    later = "epochs after the first" if run.epochs > 1 else "the epoch"
    words = (
        f"Bytes that {'the node fetches' if run.nodes == 1 else f'all {count(run.nodes)} nodes fetch'} in {later}, "
        f"by the size of {'its cache' if run.nodes == 1 else 'the cache of each'}. LRU evicts the least recently used "
        "shard; next use, the rule of Shardwise, evicts the shard that is needed last."
    )
    legend = key(
        [("LRU", "peer"), ("next use", "ours"), *((name, kind) for name, _, kind in thresholds)]
    )
    rows = [
        [
            cell(name),
            cell(at, size(at)),
            cell(at / max(total, 1), f"{100 * at / max(total, 1):.0f} %"),
        ]
        for name, at, _ in thresholds
    ]
    answer = table(["smallest cache with", "bytes", "of all shards"], rows, "thresholds")
    shown = [
        p for p in points if p[0] in {total * percent // 100 for percent in (10, 25, 50, 75, 100)}
    ]
    rows = [[cell(p[0], size(p[0])), cell(p[1], size(p[1])), cell(p[2], size(p[2]))] for p in shown]
    by_size = table(["cache", "LRU", "next use"], rows, "fetched")
    return section(title, f"{count(run.epochs)} epochs are planned.", [
        card("Bytes fetched by cache size", words, draw.draw("Bytes fetched by cache size", 260, one), legend),
        card("How large must the cache be?", "", answer, by_size),
    ])  # fmt: skip
