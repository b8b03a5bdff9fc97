"""Replaces packages that programs import by packages of shardwise with the same interface."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from .errors import InvalidArgument


def _one_name(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def take_the_place_of(
    name: str,
    modules: Mapping[str, Sequence[str]],
    names_of: Callable[[str, Any], dict[str, Any]] = _one_name,
) -> None:
    """Makes ``import <name>`` import shardwise.<name>, in this process and in workers that it
    spawns. A second call does nothing.

    modules: for each module of the package, the modules of shardwise.<name> that have its names.
    names_of: the attributes for a public name and its value. Raises InvalidArgument if a program
    has imported that package already.
    """
    here = sys.modules[f"shardwise.{name}"]
    present = sys.modules.get(name)
    if present is here:
        return
    if present is not None and getattr(present, "__shardwise__", None) is None:
        raise InvalidArgument(
            f"{name} is already imported, from {getattr(present, '__file__', None)!r}; call "
            f"shardwise.{name}.install() before the import"
        )
    # Spawned workers inherit sys.path. Their import of the original package finds the alias
    # package, which calls install() again.
    folder = os.path.join(os.path.dirname(os.path.abspath(str(here.__file__))), "alias")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    for module_name, sources in modules.items():
        module = ModuleType(f"{name}.{module_name}", f"Names of shardwise.{name}.")
        for source in sources:
            found = importlib.import_module(f"shardwise.{name}.{source}")
            for public in found.__all__:
                vars(module).update(names_of(public, getattr(found, public)))
        sys.modules[f"{name}.{module_name}"] = module
        if not isinstance(getattr(here, module_name, None), ModuleType):
            setattr(here, module_name, module)
    sys.modules[name] = here


def run_program(package: str, install: Callable[[], None]) -> int:
    """``python -m shardwise.<package> (script.py | -m module) [arguments]``: runs the program after
    ``install()``."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            f"usage: python -m shardwise.{package} (script.py | -m module) [arguments]\n"
            f"Runs a program with shardwise.{package} in place of {package}.",
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
        install()  # puts the alias before the program's folder, which may have a copy
        runpy.run_path(arguments[0], run_name="__main__")
    return 0
