#!/usr/bin/env python3
"""Runs the commands of a page under docs/: all its ```sh blocks, one after another, in one folder.

    run_pages.py PROGRAM PAGE SCRATCH

PROGRAM is the built `shardwise`. The blocks run in the folder SCRATCH, which gets the files that
pages use:
- data/train-{000000..000002}.tar: shards of 10 samples with the fields jpg, cls and json;
- train.idx: their index, with the columns cls and width;
- photos/: two folders (classes) of six images.
Blocks in other languages (```bash, ```cpp) are not run. Prints the commands that fail, and exits
with 1 if any does."""

import io
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zlib


def write_data(folder):
    os.makedirs(os.path.join(folder, "data"))
    for shard in range(3):
        with tarfile.open(os.path.join(folder, "data", f"train-{shard:06d}.tar"), "w") as tar:
            for i in range(10):
                fields = {
                    "jpg": b"not looked at",
                    "cls": b"%d" % (i % 3),
                    "json": b'{"width": %d}' % (100 + 40 * i),
                }
                for field, content in fields.items():
                    member = tarfile.TarInfo(f"{10 * shard + i:06d}.{field}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def png(width, height, colour):
    def part(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = (b"\0" + bytes(colour) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def write_photos(folder):
    for number, name in enumerate(("cat", "dog")):
        os.makedirs(os.path.join(folder, "photos", name))
        for i in range(6):
            with open(os.path.join(folder, "photos", name, f"{i}.png"), "wb") as file:
                file.write(png(8, 8, (200 * number, 20 * i, 100)))


def run(program, page, scratch):
    text = open(page, encoding="utf-8").read()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.S | re.M)
    if not blocks:
        return 0
    shutil.rmtree(scratch, ignore_errors=True)
    write_data(scratch)
    write_photos(scratch)
    environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(scratch, "user-cache"))
    environment["PATH"] = os.path.dirname(program) + os.pathsep + environment["PATH"]
    setup = "shardwise index --quiet -o train.idx --column cls --column 'width=json:$.width' data >/dev/null\n"
    script = "set -e -o pipefail -x\ncd \"$1\"\n" + setup + "\n".join(blocks)
    done = subprocess.run(["bash", "-c", script, "bash", scratch], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        print(f"{page}: a command fails with {done.returncode}:\n{done.stdout}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(1 if run(os.path.abspath(sys.argv[1]), sys.argv[2], os.path.abspath(sys.argv[3])) else 0)
