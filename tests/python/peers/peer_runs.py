"""Shared by the tests with torch, Lightning and Accelerate: data, and runs on several ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import write_shards

import shardwise

NUM_SAMPLES = 2001
"""Not divisible by any number of ranks or batch size of these tests."""

_HERE = Path(__file__).parent
_OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "NODE_RANK", "OMPI_", "SLURM_", "PMI_")


def make_index(folder: Path) -> Path:
    """Makes an index of NUM_SAMPLES samples in four shards."""
    write_shards(folder / "shards", [400, 501, 600, 500])
    shardwise.index(folder / "train.idx", folder / "shards", threads=0)
    return folder / "train.idx"


def launch(command: list[str], folder: Path, **variables: str) -> tuple[int, str]:
    """Runs a Python program in a folder. Returns its exit status and output."""
    env = {name: v for name, v in os.environ.items() if not name.startswith(_OF_LAUNCHERS)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=env | {"OMP_NUM_THREADS": "1"} | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def run(command: list[str], options: dict[str, Any]) -> str:
    """Runs a program of this folder with these options. Returns its output if it failed, otherwise
    ""."""
    Path(options["out"]).mkdir()
    code, said = launch([*command, json.dumps(options, default=str)], _HERE)
    return "" if code == 0 else said or "it failed without a word"


def torchrun(program: str, ranks: int, **options: Any) -> str:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return run([*launcher, str(_HERE / program)], options)


def prove_exact(index: Path, epochs: int, *runs: Path) -> None:
    """Proves that the ranks of all runs together got each sample once in each epoch."""
    ds = shardwise.open(index)
    sampler = shardwise.Sampler(ds)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        audit = shardwise.Audit(sampler)
        for folder in runs:
            for path in sorted(folder.glob("seen-*.json")):
                audit.add(json.loads(path.read_text()).get(str(epoch), []))
        assert audit.prove(sampler) == (
            f"epoch {epoch}: {NUM_SAMPLES:,} samples, each exactly once: proven"
        )
