#!/usr/bin/env python3
"""Checks the links of a built site: files and anchors must exist, and no page may load anything from another site.

    check_site.py SITE

Prints every broken link, and exits with 1 if there is one. It fetches nothing: links to other sites are not followed."""

import os
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src")}


class Page(HTMLParser):
    def __init__(self, path: str) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: set[str] = set()
        self.links: list[tuple[str, str]] = []  # (element, URL)
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("id", "name"):
            if values.get(name):
                self.ids.add(values[name] or "")
        for name in ("href", "src"):
            if values.get(name) and not (
                tag == "link" and values.get("rel") in ("canonical", "edit")
            ):
                self.links.append((tag, values[name] or ""))


def problems(site: str) -> list[str]:
    paths = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(site)
        for name in names
        if name.endswith(".html")
    ]
    pages = {os.path.normpath(path): Page(path) for path in sorted(paths)}
    found = []
    for path, page in pages.items():
        where = os.path.relpath(path, site)
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if (tag, "href") in LOADED or (tag, "src") in LOADED:
                    found.append(f"{where}: loads {link}")
                continue
            target = path
            if parts.path:
                base = site if parts.path.startswith("/") else os.path.dirname(path)
                target = os.path.normpath(
                    os.path.join(
                        base,
                        unquote(parts.path).lstrip("/") if base == site else unquote(parts.path),
                    )
                )
            if os.path.isdir(target):
                target = os.path.join(target, "index.html")
            if not os.path.exists(target):
                found.append(f"{where}: nothing is at {link}")
            elif parts.fragment and target in pages and not re.match(r"__", parts.fragment):
                if unquote(parts.fragment) not in pages[target].ids:
                    found.append(f"{where}: {link} has no such place")
    if len(pages) < 20:
        found.append(f"{site} has only {len(pages)} pages")
    return found


if __name__ == "__main__":
    FOUND = problems(os.path.normpath(sys.argv[1]))
    print("\n".join(FOUND))
    sys.exit(1 if FOUND else 0)
