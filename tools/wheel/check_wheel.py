#!/usr/bin/env python3
"""Checks a wheel that bundles its libraries.

    tools/wheel/check_wheel.py WHEEL

Its files may need only glibc and the C++ runtime of the machine, and names of Python. They may export
only the name that Python calls. The wheel must have the licences of all bundled libraries, and not be
too large. Needs readelf and nm. Prints its findings; exits with 1 if a check fails."""

import os
import re
import subprocess
import sys
import tempfile
import zipfile

# Libraries of the machine that manylinux allows and that wheels may need.
ALLOWED = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1",
    "libstdc++.so.6", "ld-linux-x86-64.so.2",
}  # fmt: skip
MOST_BYTES = 10 * 1000 * 1000
LIBRARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libraries.txt")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries():
    with open(LIBRARIES, encoding="utf-8") as lines:
        return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def faults_of_file(path, name):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-dW", path)))
    shown = output_of("nm", "-D", "--defined-only", "--format=just-symbols", path).split()
    # Names from the C and the C++ library have a version.
    foreign = [word for word in shown if not re.search("^PyInit_|@(GLIBC|CXXABI)", word)]
    print(
        f"{name}: {os.path.getsize(path) / 1e6:.1f} MB, needs {', '.join(sorted(needed))}; "
        f"{len(foreign)} foreign names shown"
    )
    faults = [f"{name} needs {library} of the machine" for library in sorted(needed - ALLOWED)]
    missing = [
        found[1]
        for found in re.finditer(r" U (\S+)", output_of("nm", "-D", "--undefined-only", path))
        if not re.search("^_?Py|@(GLIBC|CXXABI|GCC)", found[1])
    ]
    if missing:
        faults.append(f"{name} lacks {len(missing)} names: {', '.join(missing[:5])}")
    if foreign:
        faults.append(f"{name} shows {len(foreign)} names: {', '.join(foreign[:5])}")
    return faults


def bundled(wheel):
    """Returns the libraries that this wheel includes: FFmpeg's are in shardwise_video only, which
    lacks the program."""
    left_out = "cli11" if os.path.basename(wheel).startswith("shardwise_video-") else "ffmpeg"
    return [library for library in [*libraries(), "nanobind"] if library != left_out]


def faults_of(wheel):
    faults = []
    size = os.path.getsize(wheel)
    print(f"{os.path.basename(wheel)}: {size / 1e6:.2f} MB")
    if size > MOST_BYTES:
        faults.append(f"it has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        names = [name for name in archive.namelist() if not name.endswith("/")]
        files = [name for name in names if is_elf(os.path.join(folder, name))]
        for name in files:
            faults += faults_of_file(os.path.join(folder, name), name)
    if not files:
        faults.append("no library and no program is in it")
    for library in bundled(wheel):
        if not any(f"/licenses/libraries/{library}/" in name for name in names):
            faults.append(f"the licence of {library} is not in it")
    return faults


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    faults = faults_of(sys.argv[1])
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


main()
