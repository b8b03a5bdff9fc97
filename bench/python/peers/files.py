"""Samples as files: one file per sample, a thousand per folder."""

from __future__ import annotations

import os

from .base import Corpus


def write_files(corpus: Corpus, folder: str) -> None:
    for number, data in enumerate(corpus.samples()):
        path = path_of(folder, number)
        if number % 1000 == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def path_of(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number // 1000:04}", f"{number:06}.bin")


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
