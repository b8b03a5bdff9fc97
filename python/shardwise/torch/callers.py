"""Refuses those who would make an epoch of a sampler inexact. They do not say what they do with the
numbers; so this looks who is asking for them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .. import _core
from ..errors import InvalidArgument


def refuse_uneven(core: _core.Sampler, caller: Mapping[str, Any]) -> None:
    """Raises InvalidArgument if the local variables of who takes an iterator are those of a
    BatchSampler, of torch or torchdata, that would make more batches on one rank than on another:
    it tells nobody what batches it makes."""
    owner = caller.get("self")
    size = caller.get("batch_size", getattr(owner, "batch_size", None))
    drop_last = caller.get("drop_last", getattr(owner, "drop_last", False))
    if core.world_size == 1 or not isinstance(size, int) or "Sampler" not in type(owner).__name__:
        return
    some = (0, core.world_size - 1) if core.order.kind != "wids" else range(core.world_size)
    counts = [core.for_rank(rank).num_batches(size, bool(drop_last)) for rank in some]
    if min(counts) != max(counts):
        raise InvalidArgument(
            f"one rank would have {max(counts)} batches of {size}, another {min(counts)}: training "
            "in step would hang; give the DataLoader batch_sampler="
            "shardwise.torch.BatchSampler(sampler, batch_size), which makes them even and repeats "
            "nothing, or the sampler allow_uneven=True if no rank waits for another"
        )


def refuse_accelerate(core: _core.Sampler) -> None:
    """Raises InvalidArgument if a DataLoader that Accelerate prepared is about to read the sampler,
    and would leave out or repeat samples. Accelerate does not ask: so this looks who is calling."""
    if "accelerate.data_loader" not in sys.modules:
        return
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            caller = frame.f_locals.get("self")
            if _deals_again(caller, core):
                raise InvalidArgument(
                    "Accelerate would deal out the samples again that this sampler deals out: "
                    f"rank {core.rank} of {core.world_size} would miss some, or see some twice; "
                    "give accelerator.prepare() the model and the optimizer, but not the "
                    "DataLoader, and move its batches to accelerator.device"
                )
        frame = frame.f_back  # type: ignore[assignment]


def _deals_again(caller: object, core: _core.Sampler) -> bool:
    name = type(caller).__name__
    if name == "BatchSamplerShard":
        shares = getattr(caller, "num_processes", 1)
        evens = getattr(caller, "even_batches", True)
        return bool(shares > 1 and (core.world_size > 1 or evens))
    return name == "DataLoaderDispatcher"
