"""Runs a program of examples/python, and notes which samples each rank was given.

    recipe_run.py SEEN RECIPE ARGUMENT...

Writes SEEN-<process>.json at the end: the numbers of the samples by epoch.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
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
    prefix, recipe, *arguments = sys.argv[1:]
    atexit.register(lambda: Path(f"{prefix}-{os.getpid()}.json").write_text(json.dumps(seen)))
    shardwise.Loader, shardwise.Audit = SeenLoader, SeenAudit  # type: ignore[misc]
    sys.argv = [str(EXAMPLES / f"{recipe}.py"), *arguments]
    runpy.run_path(sys.argv[0], run_name="__main__")
