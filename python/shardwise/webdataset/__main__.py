"""python -m shardwise.webdataset script.py [arguments]: runs a program that imports webdataset, unchanged."""

from __future__ import annotations

import os
import runpy
import sys

from .installing import install


def main() -> int:
    """Runs the script, or the module after -m, with webdataset replaced."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            "usage: python -m shardwise.webdataset (script.py | -m module) [arguments]\n"
            "Runs a program that imports webdataset, with shardwise.webdataset in its place.",
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
        install()  # its folder comes before the program's, which may have a copy of webdataset
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
