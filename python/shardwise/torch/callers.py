"""Refuses callers that would make an epoch of a sampler inexact. They do not say how they use the
numbers, so this module inspects the calling frames."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch.utils.data

from .. import _core
from ..decoded import source_of
from ..errors import InvalidArgument


_NO_DATA = "0" * 32
"""The fingerprint of a sampler that was made for a length, without a dataset."""


def _batches(caller: Mapping[str, Any]) -> tuple[int, bool] | None:
    """Returns size and drop_last of the caller's batches, from the local variables of torch's or
    torchdata's BatchSampler, which has no other interface for them."""
    owner = caller.get("self")
    size = caller.get("batch_size", getattr(owner, "batch_size", None))
    drop_last = caller.get("drop_last", getattr(owner, "drop_last", False))
    if not isinstance(size, int) or "Sampler" not in type(owner).__name__:
        return None
    return size, bool(drop_last)


def refuse_other_size(batch_size: int | None, caller: Mapping[str, Any]) -> None:
    """Raises InvalidArgument if the caller's batch size differs from the sampler's: tokens would
    count other batches than were trained on."""
    batches = _batches(caller)
    if batch_size is not None and batches is not None and batches[0] != batch_size:
        raise InvalidArgument(
            f"the batch sizes differ: the sampler has {batch_size}, the DataLoader {batches[0]}; "
            "give batch_size only to the DataLoader, or give both the same batch_size"
        )


def refuse_uneven(numbers: _core.SamplerIterator, caller: Mapping[str, Any]) -> None:
    """Raises InvalidArgument if the caller would make more batches on one rank than on another. A
    later load_state_dict() checks it again."""
    batches = _batches(caller)
    if batches is not None:
        numbers.require_even(*batches)


def refuse_readers(core: _core.Sampler) -> None:
    """Raises InvalidArgument if the DataLoader that is about to read the sampler would leave out or
    repeat samples. A Sampler calls it for each iterator."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module == "accelerate.data_loader":
            _refuse_accelerate(core, frame.f_locals.get("self"))
        if isinstance(module, str) and module.startswith(("torch.utils.data.", "torchdata.")):
            _refuse_out_of_order(frame.f_locals.get("self"))
            _refuse_other_data(core, frame.f_locals.get("self"))
        frame = frame.f_back  # type: ignore[assignment]


def _refuse_accelerate(core: _core.Sampler, caller: object) -> None:
    if _deals_again(caller, core):
        raise InvalidArgument(
            "Accelerate would split this sampler's samples a second time, so rank "
            f"{core.rank} of {core.world_size} would miss some; give accelerator.prepare() only "
            "the model and the optimizer, and move batches to accelerator.device"
        )


def _refuse_out_of_order(caller: object) -> None:
    """Refuses a DataLoader that delivers batches in the order in which its workers finish. A count
    of batches then does not say which samples were delivered."""
    if not isinstance(caller, torch.utils.data.DataLoader) or caller.num_workers < 2:
        return
    if not getattr(caller, "in_order", True):
        raise InvalidArgument(
            "DataLoader(in_order=False) delivers batches out of order, so token() and "
            "state_dict() would count batches that were not delivered; set in_order=True"
        )


def _refuse_other_data(core: _core.Sampler, caller: object) -> None:
    """Refuses a DataLoader over other data than the sampler's, in which the numbers mean other
    samples."""
    data = getattr(caller, "_dataset", None)  # a DataLoader's iterator has it, and reads it
    if isinstance(caller, torch.utils.data.DataLoader):
        data = caller.dataset
    data = source_of(data)
    if not isinstance(data, _core.Dataset) or core.fingerprint in (data.fingerprint, _NO_DATA):
        return
    raise InvalidArgument(
        "the sampler and the DataLoader have different data; give both the same Dataset, or the "
        "same view of a Dataset"
    )


def _deals_again(caller: object, core: _core.Sampler) -> bool:
    name = type(caller).__name__
    if name == "BatchSamplerShard":
        shares = getattr(caller, "num_processes", 1)
        evens = getattr(caller, "even_batches", True)
        return bool(shares > 1 and (core.world_size > 1 or evens))
    return name == "DataLoaderDispatcher"
