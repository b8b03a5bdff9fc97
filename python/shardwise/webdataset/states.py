"""States of pipelines: what is left of a pass, dealt to any number of ranks and workers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .._core import Order
from ..errors import InvalidArgument, Mismatch
from .source import Dealing, Place, ShardSource, Start, left_of, sampler_of

VERSION = 1


def fingerprint_of(source: ShardSource, order: Order) -> str:
    """Identifies the samples and their order, which a state must match."""
    return f"{sampler_of(source.opened(), order, Start(0), 0, 0, 1).fingerprint} {order!r}"


def part_of(
    start: Start,
    dealing: Dealing,
    places: Sequence[Place],
    fingerprint: str,
    items: int,
    is_over: bool,
) -> dict[str, Any]:
    """Returns the part of one rank: the places of its workers, or that its pass is over. Plain
    values, for any checkpoint."""
    return {
        "rank": dealing.rank,
        "world_size": dealing.world_size,
        "block": dealing.block,
        "start": [start.number, start.repetition, start.token, list(start.left), start.has_ended],
        "places": [list(place) for place in places],
        "items": items,
        "is_over": is_over,
        "fingerprint": fingerprint,
    }


def gathered(part: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of all ranks. Collective if torch.distributed is initialised."""
    parts = [part]
    if part["world_size"] > 1:
        distributed = getattr(sys.modules.get("torch"), "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            parts = [None] * distributed.get_world_size()  # type: ignore[list-item]
            distributed.all_gather_object(parts, part)
    return {"version": VERSION, "parts": parts}


def parts_of(state: Any) -> list[dict[str, Any]]:
    """Returns the parts of a state, or of the states of all ranks, by rank. Raises
    InvalidArgument."""
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    parts: dict[int, dict[str, Any]] = {}
    for one in states:
        if not isinstance(one, dict) or one.get("version") != VERSION or "parts" not in one:
            raise InvalidArgument(
                f"not a state of a pipeline: {one!r:.60}; give the complete state_dict()"
            )
        parts.update({part["rank"]: part for part in one["parts"]})
    if not parts:
        raise InvalidArgument(
            "the state of the pipeline has no parts; give the complete state_dict()"
        )
    wanted = next(iter(parts.values()))["world_size"]
    if sorted(parts) != list(range(wanted)):
        raise InvalidArgument(
            f"the state has only {len(parts)} of {wanted} ranks; give load_state_dict() a list of "
            "the states of all ranks, or save the state where torch.distributed is initialised"
        )
    return [parts[rank] for rank in range(wanted)]


def start_of(part: dict[str, Any]) -> Start:
    """Returns where the pass began, from one rank's part of a state."""
    number, repetition, token, left, has_ended = part["start"]
    return Start(number, repetition, token, tuple(left), has_ended)


def left_behind(source: ShardSource, order: Order, parts: list[dict[str, Any]]) -> Start:
    """Returns where a run with these parts continues. Raises Mismatch."""
    starts = {start_of(part) for part in parts}
    fingerprint = fingerprint_of(source, order)
    if any(part["fingerprint"] != fingerprint for part in parts):
        raise Mismatch(
            f"the state belongs to other shards or another order: {parts[0]['fingerprint']!r}, "
            f"not {fingerprint!r}; make the pipeline with the same shards, shuffle() and seed"
        )
    if len(starts) > 1 or len({part["block"] for part in parts}) > 1:
        raise Mismatch(
            "the parts of the state are of different passes; save the state on all ranks at the "
            "same step"
        )
    start = starts.pop()
    if all(part["is_over"] for part in parts):
        return Start(start.number + 1)
    world_size, block = len(parts), parts[0]["block"]
    newest = max(Place(*place).repetition for part in parts for place in part["places"])
    left: list[int] = []
    reached = 0  # the largest number of blocks that a rank has begun in the newest epoch
    streams = []
    for rank, part in enumerate(parts):
        places = [Place(*place) for place in part["places"]]
        if part["is_over"]:
            continue
        for worker, place in enumerate(places):
            dealing = Dealing(rank, world_size, worker, len(places), block)
            if place.repetition == start.repetition:
                left += left_of(start, dealing)[place.left :]
            for repetition in range(place.repetition, newest):
                taken = place.taken if repetition == place.repetition else 0
                left += _rest(source, order, start, repetition, dealing, taken, None)
            taken = place.taken if place.repetition == newest else 0
            streams.append((dealing, taken))
            if taken > 0:
                reached = max(reached, (taken - 1) // block * len(places) + worker + 1)
    has_ended = newest == start.repetition and start.has_ended
    first = sampler_of(source.opened(), order, start, newest, 0, world_size)
    sizes = [len(first.for_rank(rank)) for rank in range(world_size)]
    if any(part["is_over"] for part in parts):
        reached = -(-max(sizes) // block)
    token = start.token if newest == start.repetition else None
    if not has_ended and reached > 0:
        for dealing, taken in streams:
            left += _rest(source, order, start, newest, dealing, taken, reached)
        has_ended = max(sizes) <= reached * block
        token = None if has_ended else first.token_after_batches(reached, block)
    return Start(start.number, newest, token, tuple(left), has_ended)


def _rest(
    source: ShardSource,
    order: Order,
    start: Start,
    repetition: int,
    dealing: Dealing,
    taken: int,
    reached: int | None,
) -> list[int]:
    """Returns the samples of a stream that are not delivered yet: of its rank's blocks before block
    ``reached``, all but the stream's first ``taken`` samples."""
    if repetition == start.repetition and start.has_ended:
        return []
    d = dealing
    sampler = sampler_of(source.opened(), order, start, repetition, d.rank, d.world_size)
    size = len(sampler)
    last = -(-size // d.block) if reached is None else min(reached, -(-size // d.block))
    rest: list[int] = []
    for own, block in enumerate(range(d.worker, last, d.num_workers)):
        skipped = min(max(taken - own * d.block, 0), d.block)
        places = range(block * d.block + skipped, min((block + 1) * d.block, size))
        rest += [sampler[place] for place in places]
    return rest


__all__ = ["VERSION", "gathered", "left_behind", "part_of", "parts_of", "start_of"]
