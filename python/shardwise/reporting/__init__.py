"""report(): a page about a data set, an order of it, the cache that it needs, and a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Union

from .. import _core
from ..arguments import path_of, refuse, require, suggests, whole_number
from ..errors import InvalidArgument
from ..opening import open

__all__ = ["report"]


def _list_of(given: Any) -> list[Any]:
    """The given values by rank; a single one is that of rank 0."""
    if given is None:
        return []
    if isinstance(given, (str, os.PathLike, Mapping)) or hasattr(given, "_asdict"):
        return [given]
    return list(given)


@suggests
def report(
    data: Union[str, os.PathLike[str], _core.Dataset],
    output: Union[str, os.PathLike[str]] = "report.html",
    *,
    order: Union[_core.Order, None] = None,
    world_size: int = 1,
    batch_size: int = 64,
    nodes: int = 1,
    epoch: int = 0,
    epochs: int = 3,
    classes: Union[str, None] = None,
    stats: Any = None,
    traces: Union[str, os.PathLike[str], Sequence[Union[str, os.PathLike[str]]], None] = None,
    pictures: bool = False,
) -> str:
    """Writes a page about a data set, and returns its path: one HTML file with pictures, which needs
    no network and no scripts.

    data: a dataset, or the path of an index. output: the file; an earlier report is replaced.

    order, world_size, batch_size, nodes, epoch, epochs: the run to show. The cache is planned for
        these epochs, from ``epoch`` on.

    classes: a metadata column with the classes of samples, by default cls. A field is read from the
        shards, for at most 10,000 samples, and again for batches.

    stats: what Loader.stats() returned, a dict of it, or a JSON file of it; or a list by rank.
    traces: a file of Loader.trace(), or a list of files by rank.
    pictures: also show the pictures of the slowest samples of traces.

    Large data sets: sizes and columns are those of 100,000 samples, and the page says so.
    Needs matplotlib: pip install 'shardwise[report]'.
    Raises ModuleNotFoundError without matplotlib; NotFound for a missing folder; InvalidArgument for
    an empty data set, or unknown classes. An output that is another file is also InvalidArgument.
    Raises BadField for a file that is not a trace; Mismatch for a trace of other data.
    """
    from .contents import classes_of, contents
    from .drawing import Drawer
    from .orders import Run, order_section, plan_section
    from .page import document, require_output, write
    from .runs import run_section

    output = path_of(output)
    require_output(output)
    draw = Drawer()
    dataset = data if isinstance(data, _core.Dataset) else open(data)
    require("order", order, _core.Order, "give a shardwise.Order", none=True)
    if len(dataset) == 0:
        raise InvalidArgument(
            f"the data set has no samples: {dataset.path!r}; choose another index or condition"
        )
    for name, value in (
        ("world_size", world_size),
        ("batch_size", batch_size),
        ("nodes", nodes),
        ("epochs", epochs),
    ):
        if whole_number(name, value, 2**32) == 0:
            refuse(name, value, "give 1 or more")
    named = _core.Order() if order is None else order
    run = Run(named, world_size, batch_size, nodes, whole_number("epoch", epoch), epochs)
    found = classes_of(dataset, classes)
    shown_run = run_section(dataset, _list_of(stats), _list_of(traces), pictures, draw)
    body = contents(dataset, found, draw) + order_section(dataset, run, found, draw)
    body += plan_section(dataset, run, draw) + shown_run
    title = os.path.basename(_core.without_secrets(dataset.origin or dataset.path))
    write(output, document(title, body, _core.version))
    return output
