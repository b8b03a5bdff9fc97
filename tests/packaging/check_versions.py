#!/usr/bin/env python3
"""Checks that all places which state the version agree with CMakeLists.txt, and that the lists of
bundled libraries agree.

    check_versions.py SOURCE-FOLDER"""

import re
import sys
import tomllib
from pathlib import Path

PLACES = {
    "CHANGELOG.md": r"^## (\d+\.\d+\.\d+)",
    "CITATION.cff": r"^version: (\S+)$",
}
MINOR_PLACES = {
    "examples/CMakeLists.txt": r"find_package\(shardwise (\S+) ",
    "tests/packaging/consumer/CMakeLists.txt": r"find_package\(shardwise (\S+) ",
    "tests/packaging/video_consumer/CMakeLists.txt": r"find_package\(shardwise (\S+) ",
    "tests/packaging/libtorch_consumer/CMakeLists.txt": r"find_package\(shardwise (\S+) ",
    "docs/versions.md": r"libshardwise\.so\.(\d+\.\d+)",
}


def first(text, pattern):
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else None


def faults_of(root):
    def read(name):
        return (root / name).read_text(encoding="utf-8")

    version = first(read("CMakeLists.txt"), r"^project\(shardwise VERSION (\S+) ")
    minor = version.rpartition(".")[0]
    for places, expected in ((PLACES, version), (MINOR_PLACES, minor)):
        for name, pattern in places.items():
            found = first(read(name), pattern)
            if found != expected:
                yield f"{name} states version {found}; expected {expected}"

    main = tomllib.loads(read("pyproject.toml"))
    video = tomllib.loads(read("packaging/python-video/pyproject.toml"))
    for name, project in (("pyproject.toml", main), ("packaging/python-video", video)):
        rule = project["tool"]["scikit-build"]["metadata"]["version"]
        if first(read("CMakeLists.txt"), rule["regex"].replace("?P<value>", "")) != version:
            yield f"{name} does not find version {version} in CMakeLists.txt"
    if main["build-system"] != video["build-system"]:
        yield "packaging/python-video is built by other tools than the main wheel"

    lines = [line.split() for line in read("tools/wheel/libraries.txt").splitlines()]
    libraries = {words[0] for words in lines if words and not words[0].startswith("#")}
    licences = first(read("tools/release/sbom.py"), r"LICENCES = \{([^}]*)\}")
    stated = set(re.findall(r'"([\w-]+)":', licences))
    if stated != libraries:
        yield f"tools/release/sbom.py and libraries.txt differ in {sorted(stated ^ libraries)}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    faults = list(faults_of(Path(sys.argv[1])))
    for fault in faults:
        print(f"error: {fault}")
    sys.exit(1 if faults else 0)


main()
