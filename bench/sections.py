"""The sections of the report that tools/bench.sh writes: which program each runs, and how.

A command is a list of words with these fields:

    {build} {source} {python}    the build folder, the source folder, the interpreter
    {program}                    the program shardwise
    {data}                       a folder for the data of all benches
    {json}                       the file for the tables of this command (tables.py)
    {rounds} {many}              rounds; many is four times as many, for rows of milliseconds
    {curl_shards}                shards of 32 MB for the epoch beside curl
    {tiny} {images} {pictures}   shards that the benches in C++ make (fixtures.h, pictures.h)
    {scale}                      the folder given by --scale
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

Limits = tuple[tuple[str, str], ...]

# Sizes of --quick: the report then says that its figures mean nothing.
QUICK_SAMPLES = 10_000
FULL_SAMPLES = 1_000_000


@dataclass(frozen=True)
class Section:
    """One program. Its sources are relative to bench/."""

    name: str
    source: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    quick: tuple[str, ...] = ()
    """Words that --quick adds to each command; they override earlier ones."""
    kind: str = "tables"
    """The form of the results: "tables" (JSON of tables.py), "google" (JSON of Google Benchmark),
    "markdown" or "text" (standard output)."""
    limits: Limits = ()
    """Pairs (pattern of a row, name of the row that is its limit), of which the first counts."""
    needs: tuple[str, ...] = ()
    """module:NAME, program:NAME, "gpu", "fixtures" or "scale"."""
    quick_environment: dict[str, str] = field(default_factory=dict)

    def limit_of(self, row: str) -> str | None:
        for pattern, limit in self.limits:
            found = re.fullmatch(pattern, row)
            if found:
                return found.expand(limit)
        return None


GOOGLE = (
    "--benchmark_out={json}",
    "--benchmark_out_format=json",
    "--benchmark_repetitions={rounds}",
    "--benchmark_enable_random_interleaving=true",
)


def google(
    name: str,
    source: str,
    program: str,
    title: str,
    limits: Limits,
    *quick: str,
    **environment: str,
) -> Section:
    """A program of Google Benchmark, which CMake builds as bench/PROGRAM."""
    return Section(
        name,
        source,
        title,
        ((f"{{build}}/bench/{program}", *GOOGLE),),
        quick=("--benchmark_min_time=0.001", *quick),
        kind="google",
        limits=limits,
        quick_environment=environment,
    )


def python(name: str, script: str, title: str, *words: str, **more: object) -> Section:
    """A script of bench/python, which writes tables."""
    command = ("{python}", f"{{source}}/bench/python/{script}.py", *words, "--json", "{json}")
    return Section(name, f"python/{script}.py", title, (command,), **more)  # type: ignore[arg-type]


IN_CPP = (
    google(
        "views",
        "data/view_bench.cc",
        "data/view_bench",
        "views of random samples",
        ((r"BM_(\w+View)_\w+(/.*)", r"BM_\1_Bare\2"),),
    ),
    google(
        "joins",
        "data/join_bench.cc",
        "data/join_bench",
        "joins, and views of joined samples",
        (
            (r"BM_JoinedView_(?:Plain)?Samples(/.*)", r"BM_JoinedView_PlainSamples\1"),
            (r"BM_JoinedView_\w+(/.*)", r"BM_JoinedView_Plain\1"),
        ),
    ),
    google(
        "pixels",
        "decode/pixels_bench.cc",
        "decode/pixels_bench",
        "steps on decoded pixels",
        ((r"BM_Split\w*", "BM_Copy"), (r"BM_Resize.*", "BM_ResizeFloat")),
    ),
    google(
        "jpegs",
        "decode/image_bench.cc",
        "decode/image_bench",
        "JPEGs, decoded by one thread",
        (
            (r"BM_JpegCrop_.*", "BM_JpegCrop_Bare"),
            (r"BM_JpegScale_\w+(/.*)", r"BM_JpegScale_Bare\1"),
            (r"BM_(Jpeg\w*)_\w+", r"BM_\1_Bare"),
        ),
    ),
    google(
        "video",
        "decode/video_bench.cc",
        "decode/decode_video_bench",
        "frames of videos",
        ((r"BM_(?:Limit|Sequential|Random|EveryKth)\w*/width:(\d+).*", r"BM_Limit_Rgb/width:\1"),),
    ),
    google(
        "index",
        "index/index_bench.cc",
        "index/index_bench",
        "building an index",
        ((r"BM_Index(?:Scan|Build).*", "BM_IndexScan_HeaderWalk"),),
    ),
    google(
        "large-index",
        "index/scale_bench.cc",
        "index/scale_bench",
        "look-ups in a large index (simulated)",
        (),
        SHARDWISE_BENCH_SCALE="100000",
    ),
    google(
        "cold",
        "loader/cold_bench.cc",
        "loader/cold_bench",
        "reading with a cold page cache",
        ((r"BM_Cold(\w+)_[A-Z]\w+/.*", r"BM_Cold\1_Pread/in_flight:32"),),
    ),
    google(
        "image-loader",
        "loader/image_loader_bench.cc",
        "loader/image_loader_bench",
        "JPEGs through the loader",
        ((r"BM_(Images|Crops|Scaled)_\w+(/.*)", r"BM_\1_Bare\2"),),
    ),
    google(
        "loader",
        "loader/loader_bench.cc",
        "loader/loader_bench",
        "bytes through the loader",
        ((r"BM_(Tiny|Image)_.*", r"BM_\1_Memcpy"),),
    ),
    google(
        "orders",
        "order/order_bench.cc",
        "order/order_bench",
        "orders and proofs",
        ((r"BM_Step_.*", "BM_Peer_TorchRandperm/n:10000000"),),
    ),
    google(
        "mixtures",
        "order/mixture_bench.cc",
        "order/order_mixture_bench",
        "mixtures and weighted draws",
        ((r"BM_WeightedDraw_Draw(/.*)", r"BM_Peer_RunningSums\1"),),
    ),
    replace(
        google(
            "cache",
            "storage/cache_bench.cc",
            "storage/cache_bench",
            "the shard cache, of 10 and 1,000 shards",
            (
                (r"BM_ShardCache_Open(/.*)", r"BM_Bare_List\1"),
                (r"BM_ShardCache_FetchThatFits(/.*)", r"BM_Bare_Fetch\1"),
                (r"BM_ShardCache_FetchThatEvicts(/.*)", r"BM_Bare_FetchThatEvicts\1"),
            ),
        ),
        # To fill a cache of 100,000 shards for each repetition would take half an hour.
        commands=(
            ("{build}/bench/storage/cache_bench", *GOOGLE, "--benchmark_filter=-shards:100000"),
        ),
    ),
)

CURL = ("{curl_shards}", "{rounds}")

OTHERS = (
    Section(
        "loader-peers",
        "loader/peers.py",
        "whole JPEGs beside DALI, Grain and wids",
        (
            (
                "{python}",
                "{source}/bench/loader/peers.py",
                "{build}/bench/loader/image_loader_bench",
                "--env={build}/venv",
                "--rounds={rounds}",
                "--json={json}",
            ),
        ),
    ),
    Section(
        "curl",
        "remote/epoch_against_curl.sh",
        "an epoch over shards of a web server, beside curl",
        (("bash", "{source}/bench/remote/epoch_against_curl.sh", "{program}", *CURL),),
        kind="text",
        needs=("program:nginx", "program:curl"),
    ),
    Section(
        "scale",
        "index/scale_sets.py",
        "the commands of an index on large sets",
        (
            (
                "{python}",
                "{source}/bench/index/scale_sets.py",
                "--program={program}",
                "--walk={build}/bench/index/header_walk",
                "--folder={scale}/shardwise-scale",
            ),
        ),
        quick=("--samples=20000",),
        kind="markdown",
        needs=("scale",),
    ),
)

IN_PYTHON = (
    python(
        "random-items",
        "random_items",
        "one random item in Python",
        "{tiny}",
        "{images}",
        "--rounds={many}",
        quick=("--samples=50",),
        needs=("fixtures",),
    ),
    python(
        "sampler-steps",
        "sampler_steps",
        "a step of a sampler in Python",
        "--rounds={many}",
        quick=("--samples=2000",),
        needs=("module:torch",),
    ),
    Section(
        "epochs",
        "python/loader_epoch.py",
        "Loader beside wids and libjpeg-turbo",
        tuple(
            (
                "{python}",
                "{source}/bench/python/loader_epoch.py",
                *what,
                "--rounds={rounds}",
                "--json={json}",
            )
            for what in (
                ("raw", "{images}"),
                ("jpeg", "{pictures}", "--bare={build}/bench/loader/image_loader_bench"),
            )
        ),
        needs=("fixtures",),
    ),
    python(
        "side-by-side",
        "side_by_side",
        "packages side by side in Python",
        "{data}/side-by-side",
        "--images={images}",
        "--images-shards=2",
        "--tiny={tiny}",
        "--tiny-shards=2",
        "--pictures={pictures}",
        "--rounds={rounds}",
        quick=("--items=50", "--images-shards=10"),
        needs=("fixtures",),
    ),
    python(
        "remote-epochs",
        "remote_epochs",
        "epochs of ImageNet-like shards on a server",
        "{data}/remote",
        "--rounds={rounds}",
        quick=("--pictures=240", "--shards=4"),
        needs=("module:PIL",),
    ),
    python(
        "remote-epochs-far",
        "remote_epochs",
        "epochs of ImageNet-like shards on a server 20 ms away, 100 MB/s",
        "{data}/remote",
        "--rounds={rounds}",
        "--latency=20",
        "--rate=100",
        quick=("--pictures=240", "--shards=4"),
        needs=("module:PIL",),
    ),
    python(
        "ranges",
        "range_batches",
        "samples of remote shards by range",
        "{data}/ranges",
        "--rounds={many}",
        quick=("--rounds=1", "--latency=1"),
    ),
    python(
        "webdataset",
        "webdataset_pipelines",
        "pipelines of webdataset, with its import and with shardwise.webdataset",
        "--rounds={rounds}",
        quick=("--samples=200",),
        needs=("module:webdataset", "module:PIL"),
    ),
    python(
        "video-clips",
        "video_clips",
        "random clips of videos, beside torchcodec and decord",
        "{data}/videos",
        "--rounds={rounds}",
        quick=("--videos=4", "--seconds=3"),
        needs=("program:ffmpeg",),
    ),
    python(
        "trainer",
        "trainer_beside",
        "a trainer with a loader beside it",
        "{pictures}",
        "--rounds={rounds}",
        quick=("--steps=4",),
        needs=("fixtures",),
    ),
    python(
        "ray",
        "ray_read",
        "shardwise.ray beside Ray's own reader",
        "{data}/ray",
        "--rounds={rounds}",
        quick=("--images=100", "--tiny=1000"),
        needs=("module:ray", "module:pyarrow"),
    ),
    python(
        "threads",
        "gpu_training",
        "loaders by number of threads",
        "{data}/training",
        "--task=threads",
        "--rounds={rounds}",
        quick=("--pictures=512",),
        needs=("module:torch", "module:webdataset", "module:torchvision"),
    ),
    python(
        "gpu",
        "gpu_training",
        "training on a GPU",
        "{data}/training",
        "--task=train",
        "--rounds={rounds}",
        quick=("--pictures=512",),
        needs=("gpu", "module:torch", "module:webdataset", "module:torchvision"),
    ),
)

SECTIONS = (*IN_CPP, *OTHERS, *IN_PYTHON)
