"""Running programs with a package of shardwise in the place of the one that they import."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable


def run_program(package: str, install: Callable[[], None]) -> int:
    """``python -m shardwise.<package> (script.py | -m module) [arguments]``: runs the program after
    ``install()``."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            f"usage: python -m shardwise.{package} (script.py | -m module) [arguments]\n"
            f"Runs a program that imports {package}, with shardwise.{package} in its place.",
            file=sys.stdout if arguments else sys.stderr,
        )
        return 0 if arguments else 2
    if arguments[0] == "-m" and len(arguments) > 1:
        install()
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
        install()  # its folder comes before the program's, which may have a copy of the package
        runpy.run_path(arguments[0], run_name="__main__")
    return 0
