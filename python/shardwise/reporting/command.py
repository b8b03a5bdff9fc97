"""python -m shardwise report: writes a page about a data set."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import _core
from ..errors import Error
from ..opening import open
from . import report

_IN_SEQUENCE = ("chunked", "sharded", "sequential")  # with --no-shuffle
_KINDS = ["chunked", "sharded", "sequential", "resampled", "wids"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m shardwise report",
        description="Writes a page about an index: its shards, fields and classes, an order, the cache that it "
        "needs, and a run. The page is one HTML file, which needs no network. Needs matplotlib: pip install "
        "'shardwise[report]'.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "index",
        metavar="INDEX",
        help="the index: a path or a URL; or shards, as for shardwise.open()",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help="the page (default: %(default)s)",
    )
    parser.add_argument(
        "--where", metavar="SQL", help="use only the samples for which this SQL condition holds"
    )
    parser.add_argument(
        "--classes", metavar="NAME",
        help="column of the index with the classes, or field, which is read from shards (default: the column cls)",
    )  # fmt: skip
    run = parser.add_argument_group("The run, as for shardwise plan")
    run.add_argument(
        "--nodes",
        type=int,
        metavar="N",
        default=1,
        help="number of nodes, each with a cache (default: 1)",
    )
    run.add_argument(
        "--world", type=int, metavar="N", default=1, help="number of ranks (default: 1)"
    )
    run.add_argument(
        "--batch",
        type=int,
        metavar="B",
        default=64,
        help="samples per step on each rank (default: 64)",
    )
    run.add_argument("--epoch", type=int, metavar="N", default=0, help="first epoch, from 0")
    run.add_argument(
        "--epochs", type=int, metavar="N", default=3, help="epochs of the cache's plan (default: 3)"
    )
    order = parser.add_argument_group("Order of the samples, as for all commands")
    order.add_argument(
        "--sampler", dest="kind", choices=_KINDS, default="chunked", help="(default: chunked)"
    )
    for name, option, words, kind, choices in _core.order_options():
        about: dict[str, Any] = {"dest": name, "default": None, "help": words.replace("%", "%%")}
        if kind == "bool":
            is_on = not option.startswith("--no-")
            about |= {"action": "store_const", "const": is_on}
            if not is_on:
                about["help"] = "read the samples in the order of the index: 0, 1, 2 ..."
        else:
            about |= {"type": int if kind == "int" else str, "choices": choices or None}
            about |= {"metavar": "N" if kind == "int" else None if choices else "COLUMN"}
        order.add_argument(option, **about)
    made = parser.add_argument_group("A run that was made")
    made.add_argument(
        "--stats",
        metavar="FILE",
        action="append",
        default=[],
        help="JSON of Loader.stats(), or of shardwise epoch --json; once per rank",
    )
    made.add_argument(
        "--trace",
        metavar="FILE",
        action="append",
        default=[],
        help="file of Loader.trace() or --trace; once per rank",
    )
    made.add_argument(
        "--pictures",
        action="store_true",
        help="show the pictures of the slowest samples of the traces",
    )
    return parser


def main(arguments: list[str]) -> int:
    """Runs the command. Returns its exit status."""
    given = _parser().parse_args(arguments)
    names = [name for name, *_ in _core.order_options()]
    options = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    kind = given.kind
    if kind in _IN_SEQUENCE and not options.pop("shuffle", True):
        kind = "sequential"
    try:
        order = _core.Order(kind, **options)
        path = report(
            open(given.index, where=given.where), given.output, order=order, world_size=given.world,
            batch_size=given.batch, nodes=given.nodes, epoch=given.epoch, epochs=given.epochs,
            classes=given.classes, stats=given.stats, traces=given.trace, pictures=given.pictures,
        )  # fmt: skip
        print(path, flush=True)
    except (Error, ModuleNotFoundError, OSError, TypeError) as error:
        print(f"shardwise: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
