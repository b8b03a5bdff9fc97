"""python -m shardwise: the command-line tool that was installed with the package, and the command
report, which is part of the package."""

import os
import subprocess
import sys
import sysconfig


def main() -> int:
    """Runs the installed program `shardwise` in place of this process, or the command report."""
    if sys.argv[1:2] == ["report"]:
        from .reporting.command import main as report

        return report(sys.argv[2:])
    program = os.path.join(sysconfig.get_path("scripts"), "shardwise")
    if not os.access(program, os.X_OK):
        print(
            f"shardwise: no program at {program}; install the package shardwise again",
            file=sys.stderr,
        )
        return 1
    if sys.argv[1:] in (["--help"], ["-h"], ["help"]):
        done = subprocess.run([program, *sys.argv[1:]], check=False)
        print("\nOnly in Python:")
        print("  report  Write a page about an index: python -m shardwise report --help")
        return done.returncode
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
