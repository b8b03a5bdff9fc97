"""Programs of webdataset's users, with the original package and with shardwise.webdataset: both
give the same samples in each pass. The calls are those of webdataset's README, examples and
issues."""

from __future__ import annotations

import importlib
import io
import os
import random
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import JPEG, needs, python_path, write_shard

import shardwise
import shardwise.webdataset

needs("torch")
needs("numpy")
needs("PIL")

pytestmark = pytest.mark.filterwarnings("ignore")

try:
    PEER: Any = importlib.import_module("webdataset")
    PEER.WebDataset  # a test folder named webdataset is importable, but has no WebDataset
except (ImportError, AttributeError):
    PEER = None


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path)


def png(number: int) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (number % 256, 7, 9)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Four shards of 25 samples."""
    for shard in range(4):
        write_shard(
            tmp_path / f"train-{shard:06}.tar",
            [
                (
                    f"{i:06}",
                    {
                        ("jpg" if i % 2 else "png"): JPEG if i % 2 else png(i),
                        "cls": str(i).encode(),
                        "json": b'{"annotations": [{"category_id": %d}]}' % i,
                        "txt": f"no. {i}".encode(),
                    },
                )
                for i in range(shard * 25, shard * 25 + 25)
            ],
        )
    return str(tmp_path / "train-{000000..000003}.tar")


# Each program sets `seen` to the sample numbers of a pass. `wds` is either package.
PROGRAMS = {
    "fluid": """
        dataset = wds.WebDataset(url, shardshuffle=False).shuffle(10).decode("pil")
        dataset = dataset.to_tuple("png;jpg", "json").map(
            lambda pair: (pair[0].size, pair[1]["annotations"][0]["category_id"]))
        seen = [label for _, label in dataset]
        """,
    "stages": """
        def preprocess(sample):
            image, label = sample
            return image.mean(), label
        dataset = wds.DataPipeline(
            wds.SimpleShardList(url), wds.shuffle(100), wds.split_by_worker,
            wds.tarfile_to_samples(), wds.shuffle(10), wds.decode("torchrgb"),
            wds.to_tuple("png;jpg", "cls"), wds.map(preprocess), wds.batched(16))
        seen = [label for _, labels in dataset for label in labels.tolist()]
        """,
    "loader of a pipeline that batches": """
        dataset = wds.WebDataset(url, shardshuffle=100).shuffle(10).decode("rgb8")
        dataset = dataset.to_tuple("cls", "txt").batched(8, partial=True)
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=2)
        seen = [label for labels, _ in loader for label in labels.tolist()]
        """,
    "loader, shuffled again between workers": """
        dataset = wds.WebDataset(url, shardshuffle=100).shuffle(10).decode()
        dataset = dataset.to_tuple("cls", "txt").batched(8)
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=2)
        loader = loader.unbatched().shuffle(100).batched(10)
        seen = [int(label) for labels, _ in loader for label in labels]
        """,
    "torch's loader": """
        from torch.utils.data import DataLoader
        dataset = wds.WebDataset(url, shardshuffle=4).decode("l").to_tuple("cls")
        loader = DataLoader(dataset, batch_size=5, num_workers=2)
        seen = [label for (labels,) in loader for label in labels.tolist()]
        """,
    "dicts": """
        dataset = (wds.WebDataset(url, shardshuffle=False).decode("rgba8", handler=wds.warn_and_continue)
            .rename(image="jpg;png", label="cls").map_dict(label=lambda i: i * 2)
            .select(lambda sample: sample["label"] < 100))
        seen = [sample["label"] for sample in dataset if sample["image"].shape[2] == 4]
        """,
    "tuples": """
        dataset = wds.WebDataset(url, shardshuffle=False).decode("pill").to_tuple("cls", "txt")
        seen = [label for label, _ in dataset.map_tuple(str, len).map_tuple(int)]
        """,
    "a part of it": """
        dataset = wds.WebDataset(url, shardshuffle=False).slice(10, 30).decode().to_tuple("cls")
        seen = [label for (label,) in dataset]
        """,
    "several passes": """
        dataset = wds.WebDataset(url, shardshuffle=2).decode().to_tuple("cls").repeat(2)
        seen = [label for (label,) in dataset]
        """,
    "so many items": """
        dataset = wds.WebDataset(url, resampled=True).shuffle(10).decode().to_tuple("cls")
        seen = [len(list(dataset.with_epoch(150)))]
        """,
    "resampled shards": """
        dataset = wds.DataPipeline(
            wds.ResampledShards(url), wds.tarfile_to_samples(), wds.shuffle(10),
            wds.to_tuple("__key__"), wds.batched(5))
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=2).with_epoch(30)
        seen = [len(keys) for (keys,) in loader]
        """,
    "several urls": """
        urls = url.replace("{000000..000003}", "{000000..000001}") + "::" + url.replace(
            "{000000..000003}", "000003")
        dataset = wds.WebDataset(urls, shardshuffle=False).decode()
        seen = [sample["cls"] for sample in dataset]
        """,
    "a generator of the program's own": """
        def twice(src):
            for sample in src:
                yield sample["cls"]
                yield sample["cls"]
        dataset = wds.WebDataset(url, shardshuffle=False).decode().compose(twice)
        seen = list(dataset)
        """,
    "a stage of the program's own": """
        @wds.pipelinefilter
        def add(src, number):
            for sample in src:
                yield sample["cls"] + number
        dataset = wds.DataPipeline(
            wds.SimpleShardList(url), wds.tarfile_to_samples(), wds.decode(), add(5))
        seen = list(dataset)
        """,
    "a mixture": """
        first = wds.WebDataset(url, shardshuffle=False).decode().to_tuple("cls")
        other = wds.WebDataset(url, shardshuffle=False).decode().to_tuple("cls")
        seen = [label for (label,) in wds.RandomMix([first, other], longest=True)]
        """,
    "a decoder of the program's own": """
        def size(key, data):
            return len(data) if key.endswith((".jpg", ".png")) else None
        dataset = wds.WebDataset(url, shardshuffle=False).decode(
            size, wds.handle_extension("txt", lambda data: int(data[4:])), only=["jpg", "png", "txt"])
        seen = [sample["txt"] for sample in dataset if isinstance(sample["cls"], bytes)]
        """,
    "captions": """
        def has_both(sample):
            return "txt" in sample and ("png" in sample or "jpg" in sample)
        dataset = wds.DataPipeline(
            wds.SimpleShardList(url), wds.split_by_node, wds.split_by_worker,
            wds.tarfile_to_samples(handler=wds.warn_and_continue), wds.select(has_both),
            wds.decode("pilrgb", handler=wds.warn_and_continue),
            wds.rename(image="jpg;png;jpeg;webp", text="txt"),
            wds.map_dict(image=lambda image: image.size[0], text=lambda text: int(text[4:])),
            wds.to_tuple("image", "text"), wds.batched(10, partial=False))
        seen = [number for _, texts in dataset for number in texts.tolist()]
        """,
    "shards written anew": """
        with wds.ShardWriter("new-%04d.tar", maxcount=30, verbose=0) as sink:
            for sample in wds.WebDataset(url, shardshuffle=False).decode("rgb8"):
                sink.write({"__key__": sample["__key__"], "cls": sample["cls"],
                            "npy": sample.get("png", sample.get("jpg")), "json": sample["json"]})
        dataset = wds.WebDataset("new-{0000..0003}.tar", shardshuffle=False).decode()
        seen = [sample["cls"] for sample in dataset if sample["npy"].shape[2] == 3]
        """,
    "one shard made of another": """
        src = wds.DataPipeline(
            wds.SimpleShardList(url.replace("{000000..000003}", "000002")), wds.tarfile_to_samples(),
            wds.decode("pil"), wds.to_tuple("__key__", "jpg;png", "cls"),
            wds.map_tuple(None, lambda image: image.resize((4, 4)), None))
        with wds.TarWriter("small.tar") as dst:
            for key, image, label in src:
                dst.write({"__key__": key, "png": image, "cls": label})
        seen = [one["cls"] for one in wds.WebDataset("small.tar", shardshuffle=False).decode("pil")]
        """,
    "columns beside": """
        def add_column(src):
            beside = None
            for sample in src:
                if beside is None:
                    beside = {one["__key__"]: one["txt"] for one in wds.WebDataset(url, shardshuffle=False)}
                sample["more"] = beside[sample["__key__"]]
                yield sample
        dataset = wds.WebDataset(url, shardshuffle=False).compose(add_column).decode()
        seen = [int(sample["more"][4:]) for sample in dataset]
        """,
    "samples that the program groups itself": """
        tars = importlib.import_module(module + (".tars" if "shardwise" in module else ".tariterators"))
        def grouped(src):
            sample = None
            for member in src:
                prefix, suffix = tars.base_plus_ext(member["fname"]) if member else (None, None)
                if sample is not None and prefix != sample["__key__"]:
                    if tars.valid_sample(sample):
                        yield sample
                    sample = None
                if prefix is not None:
                    sample = sample or {"__key__": prefix, "__url__": member["__url__"]}
                    sample[suffix] = member["data"]
        def samples(src, handler=wds.warn_and_continue):
            return grouped(tars.tar_file_expander(tars.url_opener(src, handler=handler), handler=handler))
        class Shuffle(wds.PipelineStage):
            def run(self, src):
                return iter(sorted(src, key=lambda item: item["url"], reverse=True))
        dataset = wds.DataPipeline(
            wds.SimpleShardList(url), Shuffle(), wds.split_by_node, wds.split_by_worker,
            wds.pipelinefilter(samples)(), wds.shuffle(bufsize=10, initial=5), wds.decode("pilrgb"),
            wds.to_tuple("cls"))
        seen = [label for (label,) in dataset]
        """,
    "samples that the package groups": """
        tars = importlib.import_module(module + (".tars" if "shardwise" in module else ".tariterators"))
        files = tars.tar_file_expander(tars.url_opener(iter(wds.SimpleShardList(url, seed=1))))
        seen = [int(sample["cls"]) for sample in tars.group_by_keys(files)]
        """,
    "a cache": """
        dataset = wds.WebDataset("pipe:cat " + url, shardshuffle=False, cache_dir="cache")
        seen = [int(sample["cls"]) for sample in dataset]
        """,
}


def seen_by(program: str, url: str, wds: Any) -> list[Any]:
    space: dict[str, Any] = {"wds": wds, "url": url, "module": wds.__name__, "importlib": importlib}
    exec(textwrap.dedent(program), space)  # noqa: S102
    return sorted(space["seen"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_the_same_samples_with_either_import(
    name: str, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = seen_by(PROGRAMS[name], url, shardwise.webdataset)
    assert ours
    if PEER is None:
        pytest.skip("needs webdataset; skipped because it is not installed (the program ran with ours)")
    assert ours == seen_by(PROGRAMS[name], url, PEER)


def launch(program: str, arguments: list[str], world_size: int) -> list[str]:
    """Runs the ranks that torchrun would start. Returns their output."""
    script = Path("program.py")
    script.write_text(textwrap.dedent(program))
    port = str(random.randrange(20_000, 40_000))
    ranks = []
    for rank in range(world_size):
        place = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank)}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": python_path()}
        command = [sys.executable, "-W", "ignore", str(script), *arguments]
        ranks.append(
            subprocess.Popen(
                command, env={**os.environ, **place, **meeting}, stdout=subprocess.PIPE, text=True
            )
        )
    printed = [rank.communicate()[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world_size
    return printed


BEGIN = """
        import sys, torch, torch.distributed as dist
        import shardwise.webdataset as wds
        dist.init_process_group("gloo")
"""


def test_videos_and_json_on_two_ranks_come_once(tmp_path: Path) -> None:
    for shard in range(2):
        samples = [
            (f"{i}", {"mp4": b"video %d" % i, "json": b'{"number": %d}' % i})
            for i in range(shard * 11, shard * 11 + 11)
        ]
        write_shard(tmp_path / f"video-{shard}.tar", samples)
    program = BEGIN + """
        import types
        torchvision = sys.modules["torchvision"] = types.ModuleType("torchvision")
        io = sys.modules["torchvision.io"] = torchvision.io = types.ModuleType("torchvision.io")
        io.read_video = lambda path, pts_unit: (open(path, "rb").read(), None, {})  # their names end so
        dataset = wds.WebDataset(sys.argv[1], shardshuffle=2, nodesplitter=wds.split_by_node)
        dataset = dataset.shuffle(10).decode(wds.torch_video).to_tuple("mp4", "json")
        for (frames, _, _), about in wds.WebLoader(dataset, batch_size=None, num_workers=2):
            assert frames == b"video %d" % about["number"]
            print(about["number"])
    """
    printed = launch(program, [str(tmp_path / "video-{0..1}.tar")], 2)
    assert sorted(int(line) for text in printed for line in text.split()) == list(range(22))
    assert all(len(text.split()) == 11 for text in printed)


def test_ranks_that_agree_to_stop_leave_no_workers_and_go_on_later(
    tmp_path: Path, url: str
) -> None:
    program = BEGIN + """
        import multiprocessing
        dataset = wds.WebDataset(sys.argv[1], shardshuffle=4, nodesplitter=wds.split_by_node)
        dataset = dataset.shuffle(10).decode().to_tuple("cls").batched(5)
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=2)
        if sys.argv[3] == "again":
            loader.load_state_dict(torch.load(sys.argv[2]))
        rank, seen = dist.get_rank(), []
        for step, (labels,) in enumerate(loader):
            seen += labels.tolist()
            stops = torch.tensor(int(sys.argv[3] == "first" and rank == 1 and step == 3))
            dist.all_reduce(stops, dist.ReduceOp.MAX)
            if stops:
                break
        state = loader.state_dict()
        if rank == 0:
            torch.save(state, sys.argv[2])
        del loader
        import gc; gc.collect()
        assert not multiprocessing.active_children()
        print(*seen)
        dist.destroy_process_group()
    """
    arguments = [url, str(tmp_path / "state.pt")]
    first = launch(program, [*arguments, "first"], 2)
    assert [len(text.split()) for text in first] == [20, 20]
    rest = launch(program, [*arguments, "again"], 3)
    assert sorted(int(one) for text in first + rest for one in text.split()) == list(range(100))


def test_workers_that_are_spawned_know_the_rank_of_their_process_group(url: str) -> None:
    program = """
        import os, sys
        import shardwise.webdataset as wds
        if __name__ == "__main__":
            import torch.distributed as dist
            rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            dist.init_process_group("gloo")
            del os.environ["RANK"], os.environ["WORLD_SIZE"]
            dataset = wds.WebDataset(sys.argv[1]).shuffle(10).decode().to_tuple("cls")
            loader = wds.WebLoader(
                dataset, batch_size=5, num_workers=2, multiprocessing_context="spawn",
                persistent_workers=True)
            for number in range(2):
                for labels, in loader:
                    print(*labels.tolist())
                print("end")
    """
    printed = [text.split("end") for text in launch(program, [url], 2)]
    for number in range(2):
        seen = [int(one) for text in printed for one in text[number].split()]
        assert sorted(seen) == list(range(100))
    assert printed[0][0] != printed[0][1]


@pytest.mark.parametrize("kind", ["exact", "without a length", "unbatched"])
def test_lightning_checkpoints_a_loader_with_a_state_or_without(
    url: str, tmp_path: Path, kind: str
) -> None:
    is_exact = kind == "exact"
    lightning = needs("lightning")
    import torch

    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, stops: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.seen: list[int] = []
            self.stops = stops

        def training_step(self, batch: Any, number: int) -> Any:
            self.seen += [int(label) for label in batch[0]]
            if number + 1 == self.stops:
                self.trainer.save_checkpoint(tmp_path / "model.ckpt")
            return self.weight.sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    wds = shardwise.webdataset
    dataset = wds.WebDataset(url).shuffle(10).decode().to_tuple("cls").batched(5)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=2)
    if is_exact:
        loader = loader.with_length(20, silent=True)
    elif kind == "unbatched":
        loader = loader.unbatched().batched(5).with_length(20, silent=True)
    options = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    first = Model(8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lightning.Trainer(max_epochs=1, accelerator="cpu", **options).fit(first, loader)
    assert sorted(first.seen) == list(range(100))
    told = [str(one.message) for one in caught if "restarts the pass" in str(one.message)]
    assert bool(told) != is_exact
    state = torch.load(tmp_path / "model.ckpt", weights_only=False)
    (kept,) = state["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    again = wds.WebLoader(dataset, batch_size=None, num_workers=1)
    again.load_state_dict(kept)
    rest = [label for (labels,) in again for label in labels.tolist()]
    assert len(rest) == (60 if is_exact else 100)
    if is_exact:
        assert sorted(first.seen[:40] + rest) == list(range(100))
