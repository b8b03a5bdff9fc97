#!/usr/bin/env python3
"""The loader against its peers: 256 JPEGs of 500 x 375 pixels into batches of 64 whole images.

    bench/loader/peers.py IMAGE_LOADER_BENCH [--rounds N] [--env DIR] [--site DIR] [--json FILE]

IMAGE_LOADER_BENCH is the program; all rows use its shards, in SHARDWISE_BENCH_DIR. Every row has 2
threads, or 2 worker processes:

    ours    BM_Images_Loader/threads:2
    bare    BM_Images_Bare/threads:2, libjpeg-turbo alone
    wids    wids, PIL, torch's DataLoader
    dali    NVIDIA DALI's pipeline for the CPU, its reader for WebDataset
    grain   Grain's threads, simplejpeg

In each round the rows take turns. Each row reads all images twice, and only the second time counts.
The output has images per second, and the CPU time per image, summed over all threads and processes.
Both are medians with quartiles, and as medians of the ratios to `ours` in the same round.

Peers are installed with pip into a virtual environment in DIR (--env). A peer that cannot be
installed is reported and left out. torch is large: --site names a folder of packages that has it.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import venv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from tables import Table, write_json

PACKAGES = {
    "wids": ["wids", "pillow", "numpy", "torch"],
    "dali": ["nvidia-dali-cuda120", "numpy"],
    "grain": ["grain", "simplejpeg", "numpy"],
}
BATCH = 64
THREADS = 2


def jpegs_of(shards):
    """Returns the (shard, offset, size) of all JPEGs."""
    places = []
    for shard in shards:
        with tarfile.open(shard) as tar:
            places += [(shard, m.offset_data, m.size) for m in tar if m.name.endswith(".jpg")]
    return places


def wids_epochs(shards):
    import numpy
    import torch
    import wids

    class Images(torch.utils.data.Dataset):
        def __init__(self, samples):
            self.samples = samples

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, i):
            return torch.from_numpy(numpy.array(self.samples[i][".jpg"].convert("RGB")))

    directory = tempfile.TemporaryDirectory()
    counts = [len(jpegs_of([shard])) for shard in shards]
    shardlist = [{"url": s, "nsamples": n} for s, n in zip(shards, counts)]
    descriptor = pathlib.Path(directory.name) / "shards.json"
    descriptor.write_text(json.dumps({"wids_version": 1, "shardlist": shardlist}))
    images = Images(wids.ShardListDataset(str(descriptor), cache_dir=directory.name + "/cache"))
    sampler = wids.ShardedSampler(images.samples)
    loader = torch.utils.data.DataLoader(images, BATCH, sampler=sampler, num_workers=THREADS)
    while True:
        yield sum(batch.shape[0] for batch in loader)
        directory.name  # the folder exists as long as `directory`


def dali_epochs(shards):
    from nvidia.dali import fn, pipeline_def

    @pipeline_def(batch_size=BATCH, num_threads=THREADS, device_id=None)
    def pipeline():
        jpg = fn.readers.webdataset(paths=shards, ext=["jpg"], missing_component_behavior="error")
        return fn.decoders.image(jpg, device="cpu")

    count = len(jpegs_of(shards))
    running = pipeline()
    running.build()
    while True:
        done = 0
        while done < count:
            done += running.run()[0].as_tensor().shape()[0]
        yield done


def grain_epochs(shards):
    import grain.python as grain
    import simplejpeg

    class Source:
        def __init__(self):
            self.places = jpegs_of(shards)
            self.files = {shard: os.open(shard, os.O_RDONLY) for shard in shards}

        def __len__(self):
            return len(self.places)

        def __getitem__(self, i):
            shard, offset, size = self.places[i]
            return os.pread(self.files[shard], size, offset)

    images = grain.MapDataset.source(Source()).shuffle(seed=1).map(simplejpeg.decode_jpeg)
    options = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * BATCH)
    while True:
        yield sum(batch.shape[0] for batch in images.to_iter_dataset(options).batch(BATCH))


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def run_peer(name, shards):
    epochs = {"wids": wids_epochs, "dali": dali_epochs, "grain": grain_epochs}[name](shards)
    next(epochs)
    cpu, begin = cpu_seconds(), time.monotonic()
    images = next(epochs)
    seconds, cpu = time.monotonic() - begin, cpu_seconds() - cpu
    print(json.dumps({"rate": images / seconds, "cpu_us": cpu * 1e6 / images, "images": images}))


def run_ours(bench, row):
    flags = [f"--benchmark_filter=^BM_Images_{row}/threads:{THREADS}/", "--benchmark_format=json",
             "--benchmark_min_time=0.5"]
    out = subprocess.run([bench, *flags], check=True, capture_output=True, text=True).stdout
    row = json.loads(out)["benchmarks"][0]
    return {"rate": row["items_per_second"], "cpu_us": row["cpu_us"]}


def environment(directory, sites):
    """Returns the Python of a virtual environment, its environment variables, the installed
    peers, and why others were left out."""
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    variables = dict(os.environ, PYTHONPATH=os.pathsep.join(sites), PYTHONWARNINGS="ignore")
    peers, left_out = [], {}
    for peer, packages in PACKAGES.items():
        missing = [p for p in packages if not has(python, p, variables)]
        command = [python, "-m", "pip", "install", "--quiet", *missing]
        if missing and subprocess.run(command, env=variables).returncode != 0:
            left_out[peer] = f"left out: pip could not install {' '.join(missing)}"
        else:
            peers.append(peer)
    return python, variables, peers, left_out


def has(python, package, variables):
    code = f"import importlib.metadata as m; m.version({package!r})"
    return subprocess.run([python, "-c", code], env=variables, capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--env", type=pathlib.Path, default=pathlib.Path("build-peers"))
    parser.add_argument("--json", help="a file for all that was measured")
    parser.add_argument("--site", action="append", default=[])
    args = parser.parse_args()
    bench = str(pathlib.Path(args.bench).resolve())
    python, variables, peers, left_out = environment(args.env.resolve(), args.site)
    run_ours(bench, "Bare")  # this makes the shards
    base = os.environ.get("SHARDWISE_BENCH_DIR", tempfile.gettempdir() + "/shardwise-bench")
    shards = sorted(str(p) for p in pathlib.Path(base, "pictures-256").glob("*.tar"))
    results = {row: [] for row in ["ours", "bare", *peers]}
    for _ in range(args.rounds):
        results["ours"].append(run_ours(bench, "Loader"))
        results["bare"].append(run_ours(bench, "Bare"))
        for peer in list(peers):
            command = [python, __file__, "--run", peer, *shards]
            done = subprocess.run(command, env=variables, stdout=subprocess.PIPE)
            if done.returncode == 0:
                results[peer].append(json.loads(done.stdout.splitlines()[-1]))
            else:
                peers.remove(peer)
                left_out[peer] = "failed"
    about = f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    rates = Table(f"whole images; {about}", "images/s")
    cpu = Table("CPU time of an image, over all threads and processes", "us")
    for row, rounds in results.items():
        for one in rounds:
            rates.add(row, one["rate"])
            cpu.add(row, one["cpu_us"])
    for peer, why in left_out.items():
        rates.note(peer, why)
    rates.show()
    cpu.show()
    write_json(args.json, [rates, cpu])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_peer(sys.argv[2], sys.argv[3:])
    else:
        main()
