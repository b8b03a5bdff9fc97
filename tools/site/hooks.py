"""Hooks for settings that mkdocs.yml lacks: generated pages, the place of docs/index.md, and pipes in tables."""

from __future__ import annotations

import glob
import os
import re
from typing import Any


def on_config(config: Any) -> Any:
    pages = config["docs_dir"]

    def found(folder: str) -> list[str]:
        paths = sorted(glob.glob(os.path.join(pages, folder, "*.md")))
        return [os.path.relpath(path, pages) for path in paths]

    for part in config["nav"]:
        if "Formats" in part:
            part["Formats"] = found("docs/formats")
        if "C++" in part:
            overview = "reference/cpp/index.md"
            headers = [path for path in found("reference/cpp") if path != overview]
            named = [
                {os.path.basename(path).removesuffix(".md").replace("-", "/", 1) + ".h": path}
                for path in headers
            ]
            part["C++"].append({"Reference": [overview, {"Headers": named}]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Makes docs/index.md an ordinary page. MkDocs would make it its folder's index page."""
    file = files.get_file_from_path("docs/index.md")
    file.dest_uri = "docs/the-index.html"
    file.url = "docs/the-index.html"
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Removes backslashes before | in code in tables: GitHub needs them, but Python-Markdown shows
    them."""

    def unescaped(row: re.Match[str]) -> str:
        return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0])

    return re.sub(r"^\|.*\|$", unescaped, markdown, flags=re.M)
