"""shardwise compared with other readers of training data in Python: wids, webdataset, MosaicML
streaming, litdata, Grain, SPDL, and torch's DataLoader over files.

    python bench/python/side_by_side.py WORK [--images FOLDER] [--tiny FOLDER] [--pictures FOLDER]
        [--only TASK...] [--peers PEER...] [--rounds 5] [--json FILE]

WORK is a folder in which the same samples are written once in each package's format. FOLDERs have
tars: --images of large samples, --tiny of small ones, --pictures of JPEGs of one size.
--images-shards 4 takes the first four tars, and so on. A package that cannot be imported is
reported and left out. Each is used as its documentation says, with 2 worker processes or threads
(see bench/python/peers/). All samples are in memory.

Tasks: `raw` and `tiny`, an epoch of bytes; `whole` and `crop`, an epoch of decoded pictures, whole
or by a random resized crop to 224. `item` is the wall time of one random sample (`item-tiny`: of a
small one). `first` is the time to the first batch of large samples, from the program's start and
from its imports. `resume` is a new loader's time to its first batch at 90 % of an epoch, and
whether it delivers exactly the rest. `exact` shows which peers deliver each of 1,003 samples
exactly once, on 7 ranks with 2 workers each, and the batches that each rank gets.

Each peer runs in a separate process, and the peers take turns in each round. An earlier round, not
measured, adds up all delivered bytes or pixels. A peer is marked if this sum, or its number of
samples, differs from the others'. Figures are medians over the rounds, with the first and third
quartile, and the median of the ratios to shardwise round by round. Epochs also show the CPU time
per sample, over all processes; it is the better figure if others use the machine.
"""

from __future__ import annotations

import argparse
import collections
import glob
import io
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import threading
import time
from typing import Any

import shardwise
from peers import NAMES
from peers.base import Corpus

RANKS = 7
SAMPLES = 1003
TASKS = ["raw", "tiny", "whole", "crop", "item", "item-tiny", "first", "resume", "exact"]
LIMIT_S = 120

Answer = dict[str, Any]


class Child:
    """A process that runs peers.child."""

    def __init__(
        self, peer: str, corpus: Corpus, task: str, *arguments: str, **environment: str
    ) -> None:
        here = os.path.dirname(os.path.abspath(__file__))
        paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.peer = peer
        self.begin = time.monotonic()
        self._errors = open(os.path.join(corpus.folder, f"{peer}.log"), "a")
        described = json.dumps(corpus._asdict())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "peers.child", peer, task, described, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )

    def read(self) -> Answer:
        """Returns the next answer. After a timeout, kills the process and its descendants."""
        limit = threading.Timer(LIMIT_S, self._kill)
        limit.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        limit.cancel()
        if not line:
            self._process.wait()
            return {"failed": f"ended, or took more than {LIMIT_S} s"}
        answer: Answer = json.loads(line)
        return answer

    def ask(self) -> None:
        """Starts a round. read() returns the answer."""
        assert self._process.stdin is not None
        try:
            print("round", file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # the process has ended; read() reports it

    def round(self) -> Answer:
        self.ask()
        return self.read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        self._kill()
        self._process.wait()
        self._errors.close()

    def _kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def corpus_of(name: str, folder: str, work: str, shards: int | None = None) -> Corpus:
    tars = sorted(glob.glob(os.path.join(os.path.abspath(folder), "*.tar")))[:shards]
    data = shardwise.open(tars)
    lengths = [shard.num_samples for shard in data.shards]
    made = Corpus(name, tars, lengths, data[0].keys()[0], os.path.join(work, name))
    os.makedirs(made.folder, exist_ok=True)
    return made


def write_exact(folder: str) -> None:
    """Writes 1,003 samples that contain their numbers, in 30 shards."""
    os.makedirs(folder, exist_ok=True)
    for shard in range(30):
        with tarfile.open(os.path.join(folder, f"exact-{shard:06}.tar"), "w") as tar:
            for number in range(shard * SAMPLES // 30, (shard + 1) * SAMPLES // 30):
                member = tarfile.TarInfo(f"{number:06}.bin")
                member.size = 100
                tar.addfile(member, io.BytesIO(number.to_bytes(8, "little") + bytes(92)))


def show(peer: str, text: str) -> None:
    print(f"  {peer:22} {text}", flush=True)


def prepared(peers: list[str], corpus: Corpus) -> list[str]:
    """Returns the peers that are importable, and writes their samples."""
    there = []
    for peer in peers:
        child = Child(peer, corpus, "prepare")
        answer = child.read()
        child.close()
        why = answer.get("absent") or answer.get("failed")
        if why:
            show(peer, why)
        else:
            there.append(peer)
    return there


def started(peers: list[str], corpus: Corpus, task: str, *arguments: str) -> list[Child]:
    """Starts the peers that can do the task. Returns those that finished the unmeasured round."""
    children, sums = [], {}
    begun = [Child(peer, corpus, task, *arguments) for peer in peers]
    for child in begun:  # all at the same time, so that other load on the machine matters less
        answer = child.read()
        if "absent" in answer or "failed" in answer:
            if answer.get("absent") != "":
                show(child.peer, answer.get("absent") or "failed: " + answer["failed"])
            child.close()
        else:
            child.ask()
            children.append(child)
    for child in list(children):
        answer = child.read()
        if "failed" in answer:
            show(child.peer, "failed: " + answer["failed"])
            child.close()
            children.remove(child)
        else:
            sums[child.peer] = answer
    reference = next(iter(sums.values()), {})
    for peer, answer in sums.items():
        samples, total = reference.get("samples"), reference.get("sum", 0)
        # sums of different decoders differ by some thousandths
        tolerance = total / 100 if task == "pictures" else 0
        differs = abs(answer.get("sum", 0) - total) > tolerance and arguments != ("224",)
        differs |= answer.get("shapes") != reference.get("shapes")
        if answer.get("samples") != samples or differs:
            show(peer, f"DIFFERENT WORK: {answer}, and not {reference}")
    return children


def in_turn(children: list[Child], rounds: int) -> dict[str, list[Answer]]:
    answers: dict[str, list[Answer]] = {child.peer: [] for child in children}
    for _ in range(rounds):
        for child in children:
            answers[child.peer].append(child.round())
    for child in children:
        child.close()
    return answers


def spread(values: list[float], digits: int) -> str:
    if len(values) < 2:
        return f"{values[0]:12,.{digits}f}"
    low, _, high = statistics.quantiles(values, n=4)
    return f"{statistics.median(values):12,.{digits}f}  ({low:,.{digits}f} to {high:,.{digits}f})"


def tabulate(answers: dict[str, list[Answer]], key: str, unit: str, digits: int) -> None:
    """Prints a line per peer. Larger values are better only for rates."""
    base: list[float] = []
    work: list[Any] = []  # numbers of samples and bytes
    for peer, rounds in answers.items():
        failures = [answer["failed"] for answer in rounds if "failed" in answer]
        if failures:
            show(peer, f"failed: {failures[0]}")
            continue
        values = [float(answer[key]) for answer in rounds]
        base = base or values
        work = work or [rounds[0].get(name) for name in ("samples", "bytes")]
        if any([answer.get(name) for name in ("samples", "bytes")] != work for answer in rounds):
            show(peer, f"DIFFERENT WORK: {rounds}, and not {work}")
        ratio = statistics.median(a / b for a, b in zip(values, base))
        more = ""
        if "cpu_us" in rounds[0]:
            cpu = statistics.median(answer["cpu_us"] for answer in rounds)
            more = f"   CPU {cpu:9,.1f} us"
        if "missing" in rounds[0]:
            worst = max(rounds, key=lambda a: abs(a["missing"]) + a["repeated"])
            more = f"   missing {worst['missing']}, repeated {worst['repeated']}"
        show(peer, f"{spread(values, digits)} {unit}   {ratio:9.3f} x {next(iter(answers))}{more}")


def first_batches(peers: list[str], corpus: Corpus, rounds: int) -> dict[str, list[Answer]]:
    answers: dict[str, list[Answer]] = {}
    for turn in range(rounds + 1):  # round 0 may write samples, and read from disk
        for peer in list(peers):
            child = Child(peer, corpus, "first")
            answer = child.read()
            child.close()
            if "absent" in answer or "failed" in answer:
                peers.remove(peer)
                if answer.get("absent") != "":
                    show(peer, answer.get("absent") or "failed: " + answer["failed"])
            elif turn > 0:
                answer["whole"] = (answer["at"] - child.begin) * 1000
                answers.setdefault(peer, []).append(answer)
    return answers


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def delivered(peer: str, corpus: Corpus) -> list[Answer]:
    """Returns all ranks' answers: which samples they got."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    sizes = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
    children = [
        Child(peer, corpus, "deliver", "10", RANK=str(i), LOCAL_RANK=str(i), **place, **sizes)
        for i in range(RANKS)
    ]
    answers: list[Answer] = []
    for child in children:
        if not answers or "failed" not in answers[-1]:  # other ranks wait for it
            answers.append(child.read())
    for child in children:
        child.close()
    return answers


def exactness(peer: str, corpus: Corpus) -> str | None:
    """Returns a peer's line in the table of exact delivery."""
    ranks = delivered(peer, corpus)
    for answer in ranks:
        if "absent" in answer:
            return str(answer["absent"]) or None
        if "failed" in answer:
            return f"failed: {answer['failed']}"
    counts: collections.Counter[int] = collections.Counter()
    texts = []
    for epoch in range(2):
        for answer in ranks:
            for batch in answer["epochs"][epoch]:
                counts.update(batch)
        wanted = epoch + 1
        missing = sum(max(wanted - counts[i], 0) for i in range(SAMPLES))
        repeated = sum(max(counts[i] - wanted, 0) for i in range(SAMPLES))
        texts.append(f"{missing:4} missing {repeated:4} repeated")
    steps = [len(answer["epochs"][0]) for answer in ranks]
    even = f"{min(steps)}" if min(steps) == max(steps) else f"{min(steps)} to {max(steps)}"
    return f"{texts[0]}   two epochs: {texts[1]}   batches a rank: {even}"


class Run:
    """Runs the tasks, one after another."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.results: dict[str, Any] = {}

    def title(self, task: str, corpus: Corpus, text: str) -> None:
        load = os.getloadavg()[0]
        shown = f"{corpus.num_samples} samples in {len(corpus.tars)} tars"
        print(f"{task}: {text}; {shown}; load {load:.1f}", flush=True)

    def corpus(self, name: str) -> Corpus | None:
        folder = getattr(self.options, name)
        if folder is None:
            return None
        shards = getattr(self.options, f"{name}_shards")
        return corpus_of(f"{name}-{shards}", folder, self.options.work, shards)

    def rounds(self, name: str, on: str, text: str, unit: tuple[str, str, int], *how: str) -> None:
        corpus = self.corpus(on)
        if corpus is None or name not in self.options.only:
            return
        self.title(name, corpus, text)
        answers = in_turn(started(self.options.peers, corpus, *how), self.options.rounds)
        tabulate(answers, *unit)
        self.results[name] = answers

    def first(self) -> None:
        corpus = self.corpus("images")
        if corpus is None or "first" not in self.options.only:
            return
        self.title("first", corpus, "time to the first batch")
        peers = list(self.options.peers)
        self.results["first"] = first_batches(peers, corpus, self.options.rounds)
        print("  from the imports on")
        tabulate(self.results["first"], "ms", "ms", 0)
        print("  from the start of the program")
        tabulate(self.results["first"], "whole", "ms", 0)

    def exact(self) -> None:
        if "exact" not in self.options.only:
            return
        shards = os.path.join(self.options.work, "exact-shards")
        write_exact(shards)
        corpus = corpus_of("exact", shards, self.options.work)
        self.title("exact", corpus, f"{RANKS} ranks with 2 workers, batches of 10")
        self.results["exact"] = {}
        for peer in prepared(self.options.peers, corpus):
            line = exactness(peer, corpus)
            if line is not None:
                show(peer, line)
                self.results["exact"][peer] = line


def versions(peers: list[str], work: str) -> None:
    corpus = Corpus("", [], [], "", work)
    for child in [Child(peer, corpus, "about") for peer in peers]:
        answer = child.read()
        child.close()
        settings = answer.get("settings") or answer.get("absent", "")
        show(child.peer, f"{answer.get('version', '')}  {settings}")


def main() -> None:
    parser = argparse.ArgumentParser(description="shardwise beside other packages")
    parser.add_argument("work")
    for name in ("images", "tiny", "pictures"):
        parser.add_argument(f"--{name}", metavar="FOLDER")
        parser.add_argument(f"--{name}-shards", metavar="N", type=int)
    parser.add_argument("--only", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--peers", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--json", help="a file for all that was measured")
    run = Run(parser.parse_args())
    options = run.options
    options.work = os.path.abspath(options.work)
    os.makedirs(options.work, exist_ok=True)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {options.rounds} rounds")
    versions(options.peers, options.work)
    rate = ("rate", "/s", 0)
    run.rounds("raw", "images", "an epoch of bytes", rate, "epoch")
    run.rounds("tiny", "tiny", "an epoch of bytes", rate, "epoch")
    run.rounds("whole", "pictures", "an epoch of pictures", rate, "pictures", "0")
    run.rounds("crop", "pictures", "an epoch of random resized crops", rate, "pictures", "224")
    us = ("us", "us", 2)
    run.rounds("item", "images", "one random sample", us, "item", str(options.items))
    run.rounds("item-tiny", "tiny", "one random sample", us, "item", str(options.items))
    run.first()
    run.rounds("resume", "images", "at 90 % of an epoch", ("ms", "ms", 0), "resume")
    run.exact()
    if options.json:
        with open(options.json, "w") as file:
            json.dump(run.results, file)


if __name__ == "__main__":
    main()
