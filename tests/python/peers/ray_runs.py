"""What the tests beside Ray share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Before ray is imported: no figures are sent anywhere.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@contextmanager
def running_ray(cpus: int = 2, **options: Any) -> Iterator[None]:
    """A small Ray of this machine alone."""
    import ray

    ray.init(
        address="local",  # whatever else runs on this machine
        num_cpus=cpus,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        **options,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield
    finally:
        ray.shutdown()


def numbers_of(data: Any) -> list[int]:
    """The samples' numbers, in the order of the rows."""
    batches = data.select_columns(["__index__"]).iter_batches(batch_size=1000)
    return [number for batch in batches for number in batch["__index__"].tolist()]
