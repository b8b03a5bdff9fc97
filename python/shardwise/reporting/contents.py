"""The part of a report about the data set: its shards, fields and classes."""

from __future__ import annotations

import bisect
import collections
import random
from typing import Any

from .. import _core
from ..errors import InvalidArgument
from ..records import Shard
from .drawing import Drawer, byte_ticks, colour, label
from .page import card, cell, count, escaped, facts, section, size, table

MAX_SAMPLES = 100_000  # limit of samples for sizes and columns
MAX_READ = 10_000  # limit of samples that are read from shards
MAX_BARS = 60
MAX_FIELDS = 20
MAX_CLASSES = 30


def some_of(total: int, most: int) -> list[int]:
    """Numbers of samples: all, or ``most`` of them, at random but always the same."""
    if total <= most:
        return list(range(total))
    return sorted(random.Random(0).sample(range(total), most))


def shard_of(starts: list[int], number: int) -> int:
    """The shard of a sample, by the first samples of all shards (Dataset.shard_starts)."""
    return bisect.bisect_right(starts, number) - 1


def _of(taken: int, total: int) -> str:
    return (
        "all samples" if taken == total else f"{count(taken)} of {count(total)} samples, at random"
    )


class Classes:
    """The classes of samples: values of a column of the index, or of a field."""

    def __init__(self, data: _core.Dataset, name: str) -> None:
        self.name = name
        self.is_column = name in data.columns
        self._data = data
        if not self.is_column and name not in data.fields:
            raise InvalidArgument(
                f"no column and no field has the name {name!r}; the index has the columns "
                f"{', '.join(data.columns) or 'none'} and the fields {', '.join(data.fields)}"
            )

    @property
    def max_samples(self) -> int:
        """The number of samples of which classes may be read."""
        return MAX_SAMPLES if self.is_column else MAX_READ

    def of(self, numbers: list[int]) -> list[Any]:
        """The classes of these samples. A sample without a class has None."""
        if self.is_column:
            return self._data.column(self.name, numbers)
        return [
            bytes(sample[self.name][:64]).decode("utf-8", "replace").strip()
            if self.name in sample
            else None
            for sample in self._data.samples(numbers)
        ]


def classes_of(data: _core.Dataset, name: str | None) -> Classes | None:
    """The classes that users name, else those of the column cls if the index has it."""
    if name is None:
        return Classes(data, "cls") if "cls" in data.columns else None
    return Classes(data, name)


def _summary(data: _core.Dataset, shards: list[Shard]) -> str:
    info = data.info
    total = sum(shard.size_bytes for shard in shards)
    values = [
        ("samples", len(data), count(len(data))),
        ("shards", info.num_shards, count(info.num_shards)),
        ("bytes of shards", total, size(total)),
        ("members", info.num_members, count(info.num_members)),
        (
            "fields",
            len(data.fields),
            ", ".join(data.fields[:6]) + (" ..." if data.fields[6:] else ""),
        ),
        ("columns", len(data.columns), ", ".join(data.columns[:6]) or "none"),
        ("fingerprint", data.fingerprint, data.fingerprint[:10]),
    ]
    return facts(values)


def _bars(draw: Drawer, title: str, values: list[int], is_bytes: bool) -> str:
    """Bars by shard if they are few, else a histogram."""

    def one(axes: Any) -> None:
        import numpy
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        shown = FuncFormatter(lambda value, _: f"{value:,.0f}")
        if len(values) <= MAX_BARS:
            axes.bar(range(len(values)), values, color=colour("ours"), width=0.8)
            axes.set_xlabel("shard")
            axes.set_xlim(-0.6, max(len(values) - 0.4, 2.6))
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.yaxis.set_major_formatter(shown)
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            if is_bytes:
                byte_ticks(axes.yaxis, max(values), 4)
        else:
            low, high = min(values), max(values)
            bins = 1 if low == high else min(40, high - low)
            edges = [low + i * (high - low) / bins for i in range(bins + 1)]
            if low == high:
                edges = [low - 0.5, low + 0.5]
            axes.hist(numpy.asarray(values), bins=edges, color=colour("ours"), rwidth=0.92)
            axes.set_xlabel("bytes of a shard" if is_bytes else "samples of a shard")
            axes.set_ylabel("shards")
            axes.xaxis.set_major_formatter(
                FuncFormatter(lambda value, _: size(value)) if is_bytes else shown
            )
            axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
            axes.yaxis.set_major_formatter(shown)
            if low == high:
                axes.set_xticks([low])
                axes.set_xlim(low - 2, low + 2)
        axes.grid(axis="y", linewidth=0.8)
        axes.set_axisbelow(True)

    return draw.draw(title, 210, one)


def _shard_cards(data: _core.Dataset, shards: list[Shard], draw: Drawer) -> list[str]:
    starts = data.shard_starts
    samples = [end - begin for begin, end in zip(starts, starts[1:])]
    cards = []
    for title, values, is_bytes in (
        ("Samples by shard", samples, False),
        ("Bytes by shard", [shard.size_bytes for shard in shards], True),
    ):
        shown = size if is_bytes else count
        ordered = sorted(range(len(values)), key=values.__getitem__)
        rows = []
        for name, at in (("smallest", 0), ("median", len(ordered) // 2), ("largest", -1)):
            shard = ordered[at]
            path = _core.without_secrets(shards[shard].path)
            rows.append(
                [cell(name), cell(values[shard], shown(values[shard])), cell(path.split("/")[-1])]
            )
        words = "" if len(values) <= MAX_BARS else f"{count(len(values))} shards, by size"
        picture = _bars(draw, title, values, is_bytes)
        name = "bytes-by-shard" if is_bytes else "samples-by-shard"
        head = ["", "bytes" if is_bytes else "samples", "shard"]
        cards.append(card(title, words, picture, table(head, rows, name)))
    return cards


def _fields_card(data: _core.Dataset, draw: Drawer) -> str:
    import numpy

    numbers = some_of(len(data), MAX_SAMPLES)
    found = []
    for name in data.fields:
        sizes = data.sizes(name, numbers)
        found.append((int(sizes.sum()), name, sizes[sizes > 0]))
    found.sort(key=lambda field: (-field[0], field[1]))
    whole = {field.name: field for field in data.info.fields} if not data.is_view else {}
    rows, boxes = [], []
    for total, name, sizes in found[:MAX_FIELDS]:
        if len(sizes) == 0:
            continue
        points = [float(q) for q in numpy.quantile(sizes, [0.01, 0.25, 0.5, 0.75, 0.99])]
        boxes.append((label(name), points, float(sizes.max())))
        have, summed = (
            (whole[name].num_members, whole[name].size_bytes)
            if name in whole
            else (len(sizes), total)
        )
        rows.append(
            [
                cell(name),
                cell(have, count(have)),
                cell(summed, size(summed)),
                cell(points[2], size(points[2])),
                cell(int(sizes.max()), size(int(sizes.max()))),
            ]
        )

    def one(axes: Any) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        for row, (_, (low, lower, middle, upper, high), most) in enumerate(reversed(boxes)):
            axes.plot([low, high], [row, row], color=colour("ours"), linewidth=1.5)
            axes.plot([most], [row], "|", color=colour("ours"), markersize=8)
            axes.barh(
                row,
                max(upper - lower, upper * 0.02),
                left=lower,
                height=0.5,
                color=colour("pale"),
                edgecolor=colour("ours"),
            )
            axes.plot(
                [middle, middle], [row - 0.25, row + 0.25], color=colour("ours"), linewidth=2.5
            )
        axes.set_xscale("log", base=2)
        lowest, highest = min(box[1][0] for box in boxes), max(box[2] for box in boxes)
        axes.set_xlim(max(lowest / 2, 0.5), highest * 2)
        axes.xaxis.set_major_locator(LogLocator(base=32, numticks=8))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: size(value).replace(".0", ""))
        )
        axes.set_yticks(range(len(boxes)), [name for name, _, _ in reversed(boxes)])
        axes.set_ylim(-0.6, len(boxes) - 0.4)
        axes.grid(axis="x", linewidth=0.8)
        axes.set_axisbelow(True)

    words = (
        f"Sizes in {_of(len(numbers), len(data))}. Box: the middle half; line: 1 % to 99 %; tick: the "
        "largest. The scale is logarithmic."
    )
    if len(found) > MAX_FIELDS:
        words += f" {count(len(found) - MAX_FIELDS)} more fields are left out."
    picture = draw.draw("Sizes by field", 60 + 30 * len(boxes), one) if boxes else ""
    head = ["field", "samples", "bytes", "median", "largest"]
    return card("Sizes by field", words, picture, table(head, rows, "fields"))


def _classes_card(data: _core.Dataset, classes: Classes | None, draw: Drawer) -> str:
    title = "Classes"
    if classes is None:
        words = "The index has no column cls. Name a column or a field: --classes NAME, or classes= in Python."
        return card(title, words)
    numbers = some_of(len(data), classes.max_samples)
    counted = collections.Counter(
        "(no value)" if c is None else str(c) for c in classes.of(numbers)
    )
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    few = ordered[:MAX_CLASSES]
    is_short = len(ordered) <= MAX_CLASSES

    def one(axes: Any) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        shown = FuncFormatter(lambda value, _: f"{value:,.0f}")
        if is_short:
            axes.barh(
                range(len(few)),
                [number for _, number in reversed(few)],
                color=colour("ours"),
                height=0.7,
            )
            axes.set_yticks(range(len(few)), [label(name) for name, _ in reversed(few)])
            axes.set_ylim(-0.6, len(few) - 0.4)
            axes.set_xlabel("samples")
            axes.xaxis.set_major_formatter(shown)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.grid(axis="x", linewidth=0.8)
        else:
            step = max(1, len(ordered) // 400)
            ranks = list(range(0, len(ordered), step))
            axes.plot(
                [rank + 1 for rank in ranks],
                [ordered[rank][1] for rank in ranks],
                color=colour("ours"),
            )
            axes.set_yscale("log")
            axes.set_xlabel("class, by number of samples")
            axes.set_ylabel("samples")
            axes.yaxis.set_major_formatter(shown)
            axes.xaxis.set_major_formatter(shown)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.grid(linewidth=0.8)
        axes.set_axisbelow(True)

    source = "the column" if classes.is_column else "the field"
    words = f"{count(len(ordered))} different values of {source} {label(classes.name)}, in {_of(len(numbers), len(data))}."
    rows = [
        [
            cell(name),
            cell(number, count(number)),
            cell(number / len(numbers), f"{100 * number / len(numbers):.2f} %"),
        ]
        for name, number in ordered
    ]
    if len(rows) > 6:
        rows = [*rows[:3], [("", "..."), ("", ""), ("", "")], *rows[-3:]]
    height = 60 + 20 * len(few) if is_short else 240
    return card(
        title,
        words,
        draw.draw(title, height, one),
        table(["class", "samples", "share"], rows, "classes"),
    )


def contents(data: _core.Dataset, classes: Classes | None, draw: Drawer) -> str:
    """The section about the data set."""
    words = _core.without_secrets(data.origin)
    if data.is_view:
        words += " A view of some samples. Shards and their bytes are those of the whole index."
    said = f"<p>{escaped(words, 400)}</p>" if words else ""
    shards = data.shards
    cards = [
        *_shard_cards(data, shards, draw),
        _fields_card(data, draw),
        _classes_card(data, classes, draw),
    ]
    return said + _summary(data, shards) + section("The data set", "", cards)
