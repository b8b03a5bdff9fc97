"""A callback for the Trainer of transformers. Importing this module imports transformers."""

from __future__ import annotations

from typing import Any

import transformers

from ..stopping import StopGuard

__all__ = ["StopCallback"]


class StopCallback(transformers.TrainerCallback):
    """Ends train() on all ranks after the same step, when a StopGuard says so, with a checkpoint of
    the Trainer. guard: in a ``with`` block around train()."""

    def __init__(self, guard: StopGuard) -> None:
        self.guard = guard

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Checks whether the ranks stop."""
        if self.guard.should_stop():
            control.should_save = control.should_training_stop = True
