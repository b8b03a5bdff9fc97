"""Indexed random access to WebDataset tar shards, with exact epochs.

    import shardwise

    shardwise.index("train.idx", "train-{000000..001281}.tar")
    ds = shardwise.open("train.idx")
    sample = ds[42]
    jpg = sample["jpg"]                  # a memoryview into the mapped shard: no copy
    label = sample.integer("cls")

    for i in shardwise.Sampler(ds, shardwise.Order(seed=17), rank=0, world_size=8):
        use(ds[i])

    loader = shardwise.Loader(ds, columns=[shardwise.columns.image("jpg"), ...], batch_size=64)
    for epoch in loader.epochs(90):      # threads, no worker processes
        for batch in epoch:
            step(batch.torch("jpg"))
        epoch.prove()                    # each sample exactly once, or an error

shardwise.torch has samplers for torch's DataLoader. shardwise.wids has the interface of the package
wids, on this engine. Neither torch nor NumPy is imported before it is needed.
"""

import os as _os
import sys as _sys
from importlib import import_module as _import_module

from . import errors
from ._core import (
    Audit,
    Batch,
    Dataset,
    Order,
    Sample,
    Sampler,
    SamplerIterator,
    ShardCache,
    decode_image,
)
from ._core import version as __version__
from .building import index, merge, plan, query, update, verify
from .errors import Error
from .opening import open
from .signatures import give_signatures as _give_signatures

_give_signatures(Audit, Order, Sampler, ShardCache)


def _finish_imports() -> None:
    """Waits for other threads that are importing a module of this package. A child that is forked
    during such an import could never import the module."""
    for name in [name for name in _sys.modules if name.startswith(__name__ + ".")]:
        _import_module(name)


_os.register_at_fork(before=_finish_imports)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import columns, ranks, records, transforms
    from .attaching import attach, detach, side_tables
    from .batching import ByLength, Mixup
    from .decoded import DecodedDataset
    from .devices import DeviceBatch, DeviceCopier, torch_memory
    from .explaining import explain, when
    from .groups import ByGroup, aspect_groups
    from .loader import Epoch, Loader
    from .mixing import MixedDataset, mix, progress_of
    from .ragged import Ragged
    from .repacking import repack
    from .reporting import report
    from .stats import LoaderStats
    from .stopping import EarlyStop, StopGuard
    from .sums import ExactMean, Mean
    from .writing import ShardWriter, TarWriter, pack

# Modules to import when one of their names is first used, so that importing shardwise is quick.
_LATER = {
    "columns": ["columns"],
    "ranks": ["ranks"],
    "records": ["records"],
    "transforms": ["transforms"],
    "attaching": ["attach", "detach", "side_tables"],
    "batching": ["ByLength", "Mixup"],
    "decoded": ["DecodedDataset"],
    "devices": ["DeviceBatch", "DeviceCopier", "torch_memory"],
    "explaining": ["explain", "when"],
    "groups": ["ByGroup", "aspect_groups"],
    "loader": ["Epoch", "Loader"],
    "mixing": ["MixedDataset", "mix", "progress_of"],
    "ragged": ["Ragged"],
    "repacking": ["repack"],
    "reporting": ["report"],
    "stats": ["LoaderStats"],
    "stopping": ["EarlyStop", "StopGuard"],
    "sums": ["ExactMean", "Mean"],
    "writing": ["ShardWriter", "TarWriter", "pack"],
}
_MODULE_OF = {name: module for module, names in _LATER.items() for name in (module, *names)}


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        raise AttributeError(f"{__name__}.{name} is not imported: import {__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _import_module(f"{__name__}.{_MODULE_OF[name]}")
    value = module if name == _MODULE_OF[name] else getattr(module, name)
    globals()[name] = value
    return value


# Packages that users import explicitly, e.g. by `import shardwise.torch`. Completion lists them
# without importing them.
_PACKAGES = ["grain", "ray", "torch", "webdataset", "wids"]


def __dir__() -> list[str]:
    dunders = [name for name in globals() if name.startswith("__")]
    return sorted({*__all__, *dunders, *_LATER, *_PACKAGES})


__all__ = [
    "Audit",
    "Batch",
    "ByGroup",
    "ByLength",
    "Dataset",
    "DecodedDataset",
    "DeviceBatch",
    "DeviceCopier",
    "EarlyStop",
    "Epoch",
    "Error",
    "ExactMean",
    "Loader",
    "LoaderStats",
    "Mean",
    "MixedDataset",
    "Mixup",
    "Order",
    "Ragged",
    "Sample",
    "Sampler",
    "SamplerIterator",
    "ShardCache",
    "ShardWriter",
    "StopGuard",
    "TarWriter",
    "__version__",
    "aspect_groups",
    "attach",
    "columns",
    "decode_image",
    "detach",
    "errors",
    "explain",
    "index",
    "merge",
    "mix",
    "open",
    "pack",
    "plan",
    "progress_of",
    "query",
    "ranks",
    "repack",
    "report",
    "side_tables",
    "torch_memory",
    "transforms",
    "update",
    "verify",
    "when",
]
