"""python -m shardwise.webdataset script.py [arguments]: runs a program that imports webdataset,
unchanged."""

from __future__ import annotations

import sys

from ..running import run_program
from .installing import install

if __name__ == "__main__":
    sys.exit(run_program("webdataset", install))
