"""Callbacks for Lightning's Trainer. Importing this module imports lightning.pytorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import lightning.pytorch

from .. import _core
from ..arguments import refuse, suggests
from ..devices import DeviceBatch
from ..ranks import Reducer, reducer_of
from ..stopping import StopGuard

__all__ = ["MeanOverSamples", "StopCallback"]


@suggests
class StopCallback(lightning.pytorch.Callback):
    """Ends fit() on all ranks after the same step, when a StopGuard says so, with a checkpoint.

    guard: use it in a ``with`` block around fit(). It then handles the signals, but Lightning ends
        the process by itself after SIGTERM, when the checkpoint is written. checkpoint: where the
        checkpoint is written; "" means: none.
    """

    def __init__(self, guard: StopGuard, checkpoint: str | os.PathLike[str] = "") -> None:
        self.guard = guard
        self.checkpoint = os.fspath(checkpoint)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Checks whether the ranks stop."""
        if trainer.should_stop or not self.guard.should_stop():
            return
        trainer.should_stop = True
        if self.checkpoint:
            trainer.save_checkpoint(self.checkpoint)


def _num_rows(batch: Any) -> int:
    if isinstance(batch, (_core.Batch, DeviceBatch)):
        return len(batch)
    rows = batch
    if isinstance(rows, list) and rows and all(isinstance(one, Mapping) for one in rows):
        return len(rows)  # samples that were not collated
    if isinstance(rows, (list, tuple)) and rows:
        rows = rows[0]
    if isinstance(rows, Mapping) and rows:
        rows = next(iter(rows.values()))
    if isinstance(rows, (str, bytes)) or not hasattr(rows, "__len__"):
        refuse("batch", batch, "give MeanOverSamples(num_rows=...), which counts its samples")
    return len(rows)


@suggests
class MeanOverSamples(lightning.pytorch.Callback):
    """Makes each step's gradients those of the mean over all samples of the step on all ranks, also
    where the last batch is smaller on some ranks, or empty. training_step() returns the *sum* of
    the losses of its samples.

    It works for the strategies that average gradients over ranks (ddp), for one device, and with
    accumulate_grad_batches. num_rows: the number of samples of a batch; by default the rows of its
    first column. ranks: as for a Loader. Cost: one small all-reduce for each step of the optimizer.
    """

    def __init__(
        self, num_rows: Callable[[Any], int] = _num_rows, ranks: Reducer | str | None = "auto"
    ) -> None:
        self._num_rows = num_rows
        self._ranks = ranks
        self._samples = 0

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, *_: Any) -> None:
        """Counts the samples."""
        self._samples += self._num_rows(batch)

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        """Divides by the number of samples of all ranks."""
        self._ranks = reducer_of(self._ranks)
        total = self._ranks.all_reduce_sum([self._samples])[0]
        self._samples = 0
        scale = self._ranks.world_size * trainer.accumulate_grad_batches / max(total, 1)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(scale)
