"""Runs a program of examples/python, and notes which samples each rank was given.

    SEEN=PREFIX RECIPE=NAME recipe_run.py ARGUMENT...

Writes PREFIX-<process>.json at the end: the numbers of the samples by epoch. Lightning starts further
ranks with the same arguments and environment.
"""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path
from typing import Any

import shardwise
from shardwise import _core

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
seen: dict[int, list[int]] = {}


class SeenLoader(shardwise.Loader):
    def next(self) -> Any:
        batch = super().next()
        if batch is not None:
            seen.setdefault(self.epoch, []).extend(batch.samples.tolist())
        return batch


class SeenAudit:
    """The Audit of a recipe with a DataLoader."""

    def __init__(self, sampler: Any) -> None:
        self.audit, self.epoch = _core.Audit(sampler), sampler.epoch
        self.prove, self.words = self.audit.prove, self.audit.words

    def add(self, numbers: list[int]) -> None:
        seen.setdefault(self.epoch, []).extend(numbers)
        self.audit.add(numbers)


if __name__ == "__main__":
    notes = f"{os.environ['SEEN']}-{os.getpid()}.json"
    atexit.register(lambda: Path(notes).write_text(json.dumps(seen)))
    shardwise.Loader, shardwise.Audit = SeenLoader, SeenAudit  # type: ignore[misc]
    recipe = EXAMPLES / f"{os.environ['RECIPE']}.py"
    exec(compile(recipe.read_text(), recipe, "exec"))  # runpy would change sys.argv
