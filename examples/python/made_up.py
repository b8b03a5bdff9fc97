"""Writes made-up pictures with captions as img2dataset writes its output: tars, and a parquet file beside each.

    python made_up.py pictures

Other programs of this folder make such data if they are given none, so that they run without any.
Needs Pillow and pyarrow.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

import shardwise


def make(folder, num_samples=240, per_shard=100):
    """Returns the paths of the shards. Each tenth picture counts as one that could not be
    downloaded: it is only in the parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = np.random.default_rng(17)
    paths = []
    for shard, first in enumerate(range(0, num_samples, per_shard)):
        rows = []
        paths.append(folder / f"{shard:05}.tar")
        with shardwise.TarWriter(paths[-1], replace=True) as tar:
            for number in range(min(per_shard, num_samples - first)):
                width, height = (int(side) for side in dice.integers(48, 160, 2))
                row = {"key": f"{shard:05}{number:04}", "caption": f"picture {first + number} of a series",
                       "width": width, "height": height, "similarity": float(dice.random())}
                row["status"] = "failed_to_download" if number % 10 == 9 else "success"
                rows.append(row)
                if row["status"] == "success":
                    colours = np.linspace(dice.integers(256, size=3), dice.integers(256, size=3), width)
                    picture = np.broadcast_to(colours.astype(np.uint8), (height, width, 3)).copy()
                    facts = {name: row[name] for name in ("key", "caption", "width", "height", "status")}
                    tar.write({"__key__": row["key"], "jpg": picture, "json": facts, "txt": row["caption"]})
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), paths[-1].with_suffix(".parquet"))
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    for path in make(parser.parse_args().folder):
        print(path)
