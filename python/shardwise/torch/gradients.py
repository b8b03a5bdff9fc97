"""Gradients of the mean over all samples of a step, however the ranks share them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed

from ..ranks import Reducer, reducer_of


def loss_scale(num_samples: int, ranks: Reducer | str | None = "auto") -> float:
    """The factor of a sum of losses under DistributedDataParallel, which averages gradients over
    the ranks: ``(losses.sum() * loss_scale(len(batch))).backward()`` has the gradients of the mean
    over all samples of the step, also where the last batch is smaller on some ranks, or empty.

    num_samples: of this rank's step. ranks: as for a Loader. A rank without samples runs forward
    and
    backward, too, on zero rows: DistributedDataParallel waits for it. Every rank calls it. Returns
    0.0 if no rank has samples. Cost: one small all-reduce.

    >>> shardwise.torch.loss_scale(4, ranks=None)
    0.25
    """
    reducer = reducer_of(ranks)
    total = reducer.all_reduce_sum([num_samples])[0]
    return reducer.world_size / total if total else 0.0


def average_gradients(
    parameters: Iterable[torch.nn.Parameter], num_samples: int, group: Any = None
) -> int:
    """Averages gradients over all samples of a step on all ranks, without
    DistributedDataParallel. Returns the number of these samples.

    Before it, each rank's gradients are those of the *sum* of its samples' losses, over one or
    several backward passes. A rank without samples runs no backward pass, and gives 0. After it,
    the gradients of all ranks are bitwise equal: the sum over the ranks divided by the number of
    samples. A parameter that has no gradient on any rank has none after it.

    parameters: of the same shapes on all ranks. group: of torch.distributed, by default all ranks.
    Gradients are reduced in float32, or in float64 if a parameter has that type; sparse ones become
    dense. Cost: one all-reduce of all gradients.
    """
    own = [parameter for parameter in parameters if parameter.requires_grad]
    if not own:
        return num_samples
    is_double = any(parameter.dtype == torch.float64 for parameter in own)
    dtype, device = torch.float64 if is_double else torch.float32, own[0].device
    # float32 holds whole numbers up to 2^24: the number of samples travels in two parts.
    high, low = divmod(num_samples, 1 << 12)
    parts = [
        torch.zeros(parameter.numel(), dtype=dtype, device=device)
        if parameter.grad is None
        else parameter.grad.to_dense().to(device, dtype).reshape(-1)
        for parameter in own
    ]
    flags = [float(parameter.grad is not None) for parameter in own]
    flat = torch.cat([*parts, torch.tensor([*flags, high, low], dtype=dtype, device=device)])
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(flat, group=group)
    *flags, high, low = flat[-len(own) - 2 :].tolist()
    total = (int(high) << 12) + int(low)
    begin = 0
    for parameter, flag in zip(own, flags, strict=True):
        end = begin + parameter.numel()
        if flag > 0 and total > 0:
            gradient = (flat[begin:end] / total).view_as(parameter)
            parameter.grad = gradient.to(parameter.device, parameter.dtype)
        else:
            parameter.grad = None
        begin = end
    return total
