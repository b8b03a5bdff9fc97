"""How the ranks of a run agree: what a Loader needs of a process group.

torch is imported only when torch_ranks() is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Union

from . import _core
from .arguments import refuse, suggests, whole_number
from .errors import InvalidArgument


@suggests
class Reducer:
    """Ranks whose loaders agree by one function: a sum over all ranks.

    all_reduce_sum: takes a list of whole numbers in [-2^63, 2^63) and returns their sums over all
        ranks, number by number, in order. It is collective: every rank calls it alike, in prove()
        and state_dict(), from the thread that called these.
    local_rank, local_world_size: rank and number of ranks on this node, which share its shard
        cache; ranks of a node are consecutive. By default all ranks are on one node.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        all_reduce_sum: Callable[[list[int]], list[int]],
        *,
        local_rank: Union[int, None] = None,
        local_world_size: Union[int, None] = None,
    ) -> None:
        rank, world_size = whole_number("rank", rank), whole_number("world_size", world_size)
        if not callable(all_reduce_sum):
            refuse("all_reduce_sum", all_reduce_sum, "give a function of a list of integers")
        if not rank < world_size:
            raise InvalidArgument(
                f"not valid: rank={rank} with world_size={world_size}; give a "
                "rank from 0 to world_size - 1"
            )
        if (local_rank is None) != (local_world_size is None):
            raise InvalidArgument(
                "only one of local_rank and local_world_size is given; give both or neither"
            )
        self.rank = rank
        self.world_size = world_size
        self.local_rank = rank if local_rank is None else whole_number("local_rank", local_rank)
        self.local_world_size = (
            world_size
            if local_world_size is None
            else whole_number("local_world_size", local_world_size)
        )
        self.all_reduce_sum = all_reduce_sum

    def any(self, flag: object) -> bool:
        """True on all ranks if ``flag`` is true on one of them: ranks that leave a loop by it leave
        it after the same step. Every rank calls it."""
        return self.all_reduce_sum([1 if flag else 0])[0] > 0

    def __repr__(self) -> str:
        return f"<shardwise.ranks.Reducer: rank {self.rank} of {self.world_size}>"


def alone() -> Reducer:
    """This process alone, whatever else was launched: it gets every sample. Same as ranks=None."""
    return Reducer(0, 1, lambda words: words)


def _local_ranks(dist: Any, group: Any, rank: int, world_size: int) -> tuple[int, int]:
    """Returns this rank's index among the ranks of its node, and their number. Collective."""
    import socket

    nodes: list[Any] = [None] * world_size
    dist.all_gather_object(nodes, socket.gethostname(), group=group)
    own = nodes[rank]
    here = [other for other in range(world_size) if nodes[other] == own]
    if here != list(range(here[0], here[0] + len(here))):
        return 0, 1  # the node's ranks are not consecutive: treat each rank as a node
    return rank - here[0], len(here)


def torch_ranks(group: Any = None, *, device: Any = None) -> Reducer:
    """The ranks of a process group of torch.distributed, by default of the whole world.

    group: as torch.distributed takes it. The loader sends few words. A separate gloo group, in
        addition to the NCCL group, keeps them off the GPU. device: of the summed tensors; by default the current GPU for
        NCCL, else the CPU.

    Collective: every rank of the group calls it. Raises InvalidArgument if torch.distributed is not
    initialised.
    """
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidArgument(
            "torch.distributed is not initialised; call torch.distributed.init_process_group() "
            "before torch_ranks()"
        )
    if device is None:
        device = "cpu"
        if dist.get_backend(group) == "nccl":
            device = torch.device("cuda", torch.cuda.current_device())

    def all_reduce_sum(words: list[int]) -> list[int]:
        tensor = torch.tensor(words, dtype=torch.int64, device=device)
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
        sums: list[int] = tensor.tolist()
        return sums

    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    local_rank, local_world_size = _local_ranks(dist, group, rank, world_size)
    return Reducer(
        rank,
        world_size,
        all_reduce_sum,
        local_rank=local_rank,
        local_world_size=local_world_size,
    )


def _initialised_torch() -> Any:
    """Returns torch.distributed if it is initialised, else None."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def launched_ranks() -> Union[Reducer, None]:
    """torch_ranks() where torch.distributed is initialised; None for a process that was launched
    alone. Raises InvalidArgument if it was launched as one of several."""
    if _initialised_torch() is not None:
        return torch_ranks()
    rank, world_size = _core.ranks_of_launcher()
    if world_size > 1:
        raise InvalidArgument(
            f"the loader has no ranks: this process was launched as rank {rank} of {world_size}; "
            "call torch.distributed.init_process_group() before making the loader, or give "
            "ranks=None so that this process gets every sample"
        )
    return None


def reducer_of(ranks: Union[Reducer, str, None]) -> Reducer:
    """The ranks that an option ``ranks`` means; see Loader. Raises InvalidArgument."""
    if isinstance(ranks, Reducer):
        return ranks
    if ranks is not None and ranks != "auto":
        refuse("ranks", ranks, "give shardwise.ranks.torch_ranks(), or a Reducer")
    return (launched_ranks() if ranks == "auto" else None) or alone()


def require_alone() -> None:
    """Repeats the check of launched_ranks(), which may have run too early. Raises InvalidArgument
    if this process has become one of several ranks, or is one of several workers of a DataLoader:
    each would give every sample."""
    dist = _initialised_torch()
    if dist is not None and dist.get_world_size() > 1:
        raise InvalidArgument(
            "the loader was made before torch.distributed was initialised, and has no ranks: "
            f"this process is rank {dist.get_rank()} of {dist.get_world_size()}; make the loader "
            "after init_process_group(), or give ranks=None so that this process gets every "
            "sample"
        )
    data = getattr(getattr(sys.modules.get("torch"), "utils", None), "data", None)
    worker = None if data is None else data.get_worker_info()
    if worker is not None and worker.num_workers > 1:
        raise InvalidArgument(
            "each worker of the DataLoader would give all samples of the loader: this is worker "
            f"{worker.id} of {worker.num_workers}; set num_workers=0, because a loader has "
            "threads, or set ranks=None if each worker's loader reads another part of the data"
        )


def present_ranks() -> tuple[int, int]:
    """This process's rank and the number of ranks: from torch.distributed if it is initialised,
    else from the launcher; (0, 1) without a launcher. Raises Distributed if the launcher's
    variables contradict each other."""
    dist = _initialised_torch()
    if dist is not None:
        return int(dist.get_rank()), int(dist.get_world_size())
    return _core.ranks_of_launcher()
