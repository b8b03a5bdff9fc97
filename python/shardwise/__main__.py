"""python -m shardwise: the command-line tool that was installed with the package."""

import os
import sys
import sysconfig


def main() -> int:
    program = os.path.join(sysconfig.get_path("scripts"), "shardwise")
    if not os.access(program, os.X_OK):
        print(f"shardwise: the program is not at {program}: install the package", file=sys.stderr)
        return 1
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
