"""The interface of the package webdataset on shardwise's engine: pipelines over shards, exact over
all ranks.

    import shardwise.webdataset as wds   # or: shardwise.webdataset.install(); import webdataset

    dataset = (
        wds.WebDataset("train-{000000..001281}.tar", nodesplitter=wds.split_by_node)
        .shuffle(1000)
        .decode("rgb8")
        .to_tuple("jpg;png", "cls")
        .batched(64)
    )
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=4)
    for epoch in range(90):
        for images, labels in loader:
            ...
            state = loader.state_dict()       # for any number of ranks and workers

Programs that were written for webdataset run unchanged: ``python -m shardwise.webdataset
train.py``, or install() before they import it. A pass is one iter(). In a pass, each sample comes
exactly once over all ranks and workers, unless the shards are resampled. docs/migrate-webdataset.md
says what differs.
"""

from __future__ import annotations

from .base import PipelineStage
from .decoding import (
    Continue,
    Decoder,
    DecodingError,
    gzfilter,
    handle_extension,
    imagehandler,
    torch_audio,
    torch_loads,
    torch_video,
)
from .fluid import FluidInterface
from .handlers import (
    ignore_and_continue,
    ignore_and_stop,
    reraise_exception,
    warn_and_continue,
    warn_and_stop,
)
from .installing import install
from .loading import WebLoader
from .mixing import RandomMix, RoundRobin
from .pipeline import DataPipeline, FluidWrapper, WebDataset
from .shards import (
    ResampledShards,
    SimpleShardList,
    non_empty,
    shardspec,
    single_node_only,
    split_by_node,
    split_by_worker,
)
from .stages import (
    Cached,
    LMDBCached,
    associate,
    batched,
    decode,
    detshuffle,
    extract_keys,
    getfirst,
    info,
    map,
    map_dict,
    map_tuple,
    pipelinefilter,
    rename,
    rename_keys,
    resampled,
    rsample,
    select,
    shuffle,
    slice,
    tarfile_samples,
    tarfile_to_samples,
    to_tuple,
    transform_with,
    unbatched,
    xdecode,
)
from .utilities import MockDataset, repeatedly, with_epoch, with_length
from .writing import ShardWriter, TarWriter, numpy_dumps, torch_dumps

__version__ = "1.0.2"
"""The version of webdataset that this package replaces."""

__all__ = [
    "Cached",
    "Continue",
    "DataPipeline",
    "Decoder",
    "DecodingError",
    "FluidInterface",
    "FluidWrapper",
    "LMDBCached",
    "MockDataset",
    "PipelineStage",
    "RandomMix",
    "ResampledShards",
    "RoundRobin",
    "ShardWriter",
    "SimpleShardList",
    "TarWriter",
    "WebDataset",
    "WebLoader",
    "associate",
    "batched",
    "decode",
    "detshuffle",
    "extract_keys",
    "getfirst",
    "gzfilter",
    "handle_extension",
    "ignore_and_continue",
    "ignore_and_stop",
    "imagehandler",
    "info",
    "install",
    "map",
    "map_dict",
    "map_tuple",
    "non_empty",
    "numpy_dumps",
    "pipelinefilter",
    "rename",
    "rename_keys",
    "repeatedly",
    "reraise_exception",
    "resampled",
    "rsample",
    "select",
    "shardspec",
    "shuffle",
    "single_node_only",
    "slice",
    "split_by_node",
    "split_by_worker",
    "tarfile_samples",
    "tarfile_to_samples",
    "to_tuple",
    "torch_audio",
    "torch_dumps",
    "torch_loads",
    "torch_video",
    "transform_with",
    "unbatched",
    "warn_and_continue",
    "warn_and_stop",
    "with_epoch",
    "with_length",
    "xdecode",
]
