"""Processes that work with one peer each, for the benches that compare them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from peers.base import Corpus

Answer = dict[str, Any]


class Child:
    """A process that runs peers.child."""

    def __init__(
        self,
        peer: str,
        corpus: Corpus,
        task: str,
        *arguments: str,
        limit_s: float = 120,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        here = os.path.dirname(os.path.abspath(__file__))
        paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.peer = peer
        self._limit_s = limit_s
        self.begin = time.monotonic()
        self._errors = open(os.path.join(corpus.folder, f"{peer}.log"), "a")
        described = json.dumps(corpus._asdict())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "peers.child", peer, task, described, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | dict(environment or {}) | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )

    def read(self) -> Answer:
        """Returns the next answer. After a timeout, kills the process and its descendants."""
        limit = threading.Timer(self._limit_s, self._kill)
        limit.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        limit.cancel()
        if not line:
            self._process.wait()
            return {"failed": f"ended, or took more than {self._limit_s:g} s"}
        answer: Answer = json.loads(line)
        return answer

    def ask(self) -> None:
        """Starts a round. read() returns the answer."""
        assert self._process.stdin is not None
        try:
            print("round", file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # the process has ended; read() reports it

    def round(self) -> Answer:
        self.ask()
        return self.read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        self._kill()
        self._process.wait()
        self._errors.close()

    def _kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
