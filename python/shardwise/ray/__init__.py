"""Exact data sets at cluster scale, with Ray Data and Ray Train.

    import shardwise.ray

    data = shardwise.ray.read("train.idx", where="width >= 256", columns=["jpg", "cls"])
    data.count()                                   # known from the index: nothing is read
    shardwise.ray.write(data.map(smaller), "small", index="small.idx")

ray, pyarrow and NumPy are imported here, and nowhere else in the package. Every node needs
shardwise, and the index at the same path. docs/ray.md has the whole way.
"""

from __future__ import annotations

try:
    import ray.data  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"shardwise.ray needs Ray Data ({error}); install it: pip install 'ray[data]'"
    ) from error

from .reading import read

__all__ = ["read"]
