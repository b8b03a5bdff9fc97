"""docs/migrate-webdataset.md names each parameter and stage of the drop-in."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import shardwise.webdataset as wds
from shardwise.webdataset import stages

PAGE = Path(__file__).parents[3] / "docs" / "migrate-webdataset.md"
TABLE = PAGE.read_text().partition("### Arguments and stages")[2].partition("\n### ")[0]


@pytest.mark.parametrize(
    "names",
    [
        list(inspect.signature(wds.WebDataset).parameters),
        [name for name in vars(wds.FluidInterface) if name[0] != "_" and name != "compose"],
        ["compose", "repeat", "with_epoch", "with_length"],
        [name for name, one in vars(stages).items() if isinstance(one, stages.StageMaker)],
        ["WDS_CACHE", "WDS_CACHE_SIZE", "WDS_SECURE"],
    ],
    ids=["parameters", "methods", "lengths", "stages", "variables"],
)
def test_the_page_names_them(names: list[str]) -> None:
    assert names
    assert [name for name in names if not re.search(rf"\b{name}\b", TABLE)] == []
