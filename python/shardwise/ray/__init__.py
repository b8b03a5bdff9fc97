"""Exact data sets at cluster scale, with Ray Data and Ray Train.

    import shardwise.ray

    data = shardwise.ray.read("train.idx", where="width >= 256", columns=["jpg", "cls"])
    data.count()                                   # known from the index: nothing is read
    shardwise.ray.write(data.map(smaller), "small", index="small.idx")

Importing this package imports ray, pyarrow and NumPy; nothing else in shardwise imports ray. Every
node needs shardwise, and the index at the same path. The page docs/ray.md describes the workflow.
"""

from __future__ import annotations

try:
    import ray.data  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"shardwise.ray needs Ray Data ({error}); install Ray Data: pip install 'ray[data]'"
    ) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .training import ExactDataConfig, ExactShard

from .indexing import index
from .reading import read
from .writing import WriteReport, write

_OF_TRAINING = ("ExactDataConfig", "ExactShard")


def __getattr__(name: str) -> object:
    """Names that need Ray Train, which Ray Data does not install."""
    if name not in _OF_TRAINING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import training
    except ImportError as error:
        raise ImportError(
            f"shardwise.ray.{name} needs Ray Train ({error}); install Ray Train: pip install "
            "'ray[train]'"
        ) from error
    return getattr(training, name)


__all__ = ["ExactDataConfig", "ExactShard", "WriteReport", "index", "read", "write"]
