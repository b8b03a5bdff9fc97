#!/usr/bin/env python3
"""Checks what shared libraries and programs link, and the names of the libraries.

    needed.py SOVERSION LIBRARY-FOLDER PROGRAM

Only the video layer may need FFmpeg, only the LibTorch layer LibTorch."""

import re
import subprocess
import sys
from pathlib import Path

FFMPEG = r"lib(av\w+|sw\w+)\.so"
LIBTORCH = r"lib(torch|c10)"


def tags(path, kind):
    text = subprocess.run(["readelf", "-dW", path], check=True, capture_output=True, text=True).stdout
    return re.findall(rf"\({kind}\).*\[(.*)\]", text)


def main():
    soversion, folder, program = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    faults = []
    for path in sorted(folder.glob("libshardwise*.so")):
        name = f"{path.name}.{soversion}"
        if tags(path, "SONAME") != [name]:
            faults.append(f"{path.name} is called {tags(path, 'SONAME')}; expected {name}")
    files = {path.stem: path for path in folder.glob("libshardwise*.so")}
    files["program"] = program
    for name, path in files.items():
        needed = tags(path, "NEEDED")
        print(f"{name}: {', '.join(needed)}")
        for allowed, pattern in (("libshardwise_video", FFMPEG), ("libshardwise_libtorch", LIBTORCH)):
            foreign = [one for one in needed if re.match(pattern, one)]
            if foreign and name != allowed:
                faults.append(f"{name} needs {', '.join(foreign)}")
    if "libshardwise" not in files:
        faults.append(f"{folder} has no libshardwise.so")
    for fault in faults:
        print(f"error: {fault}")
    sys.exit(1 if faults else 0)


main()
