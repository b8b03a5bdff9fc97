#!/usr/bin/env python3
"""Checks that the table of commands in docs/commands.md has the commands of the program, and no others.

    check_commands.py PROGRAM PAGE"""

import re
import subprocess
import sys

HELP = subprocess.run([sys.argv[1], "--help"], text=True, stdout=subprocess.PIPE, check=True).stdout
COMMANDS = set(re.findall(r"^  ([a-z]+)  ", HELP, re.M)) - {"help", "version"}
with open(sys.argv[2], encoding="utf-8") as FILE:
    TABLE = set(re.findall(r"^\| `shardwise ([a-z]+)", FILE.read(), re.M))
if COMMANDS != TABLE or len(COMMANDS) < 10:
    print(f"only the program has {sorted(COMMANDS - TABLE)}, only the page has {sorted(TABLE - COMMANDS)}")
    sys.exit(1)
