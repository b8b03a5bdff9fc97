"""python -m shardwise: the command-line tool that was installed with the package."""

import os
import sys
import sysconfig


def main() -> int:
    """Runs the installed program `shardwise` in place of this process."""
    program = os.path.join(sysconfig.get_path("scripts"), "shardwise")
    if not os.access(program, os.X_OK):
        print(
            f"shardwise: no program at {program}; install the package shardwise again",
            file=sys.stderr,
        )
        return 1
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
