#!/usr/bin/env python3
"""Makes the C++ reference, one page of Markdown for each public header, from Doxygen's XML.

    cpp_reference.py XML PAGES

XML is Doxygen's folder. PAGES is the folder to create; its index.md lists the headers and their types."""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable

Element = ElementTree.Element

ROOMS = {
    "base": "Errors, cancelling, progress",
    "tar": "Writing shards",
    "ingest": "Building an index",
    "index": "The index",
    "order": "Orders, tokens, proofs",
    "storage": "Fetching and caching",
    "data": "Data sets",
    "decode": "Video and sound",
    "loader": "Batches",
    "libtorch": "LibTorch",
}


class Reference:
    def __init__(self, folder: str) -> None:
        self.compounds: dict[str, Element] = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".xml") and name not in ("index.xml", "Doxyfile.xml"):
                compound = (
                    ElementTree.parse(os.path.join(folder, name)).getroot().find("compounddef")
                )
                if compound is not None:
                    self.compounds[compound.get("id", "")] = compound
        self.page_of: dict[str, str] = {}  # link to a type, by its id
        self.types: dict[
            str, list[Element]
        ] = {}  # by header, in its order
        self.members: dict[str, list[Element]] = {}
        for compound in self.compounds.values():
            if (
                compound.get("kind") in ("class", "struct")
                and compound.get("prot", "public") == "public"
            ):
                header = header_of(compound)
                self.types.setdefault(header, []).append(compound)
                self.page_of[compound.get("id", "")] = (
                    f"{page_name(header)}#{anchor(name_of(compound))}"
                )
            elif compound.get("kind") == "namespace":
                for member in compound.iter("memberdef"):
                    self.members.setdefault(header_of(member), []).append(member)
        for found in (*self.types.values(), *self.members.values()):
            found.sort(key=line_of)

    def headers(self) -> list[str]:
        return sorted({*self.types, *self.members})

    # Text.

    def inline(self, element: Element) -> str:
        parts = [escaped(element.text)]
        for child in element:
            parts.append(self.one_inline(child))
            parts.append(escaped(child.tail))
        return "".join(parts)

    def one_inline(self, child: Element) -> str:
        if child.tag == "computeroutput":
            return code("".join(child.itertext()))
        if child.tag == "ref":
            target = self.page_of.get(child.get("refid", ""))
            text = "".join(child.itertext())
            return f"[{code(text)}]({target})" if target else escaped(text)
        if child.tag in ("bold", "emphasis"):
            mark = "**" if child.tag == "bold" else "*"
            return mark + self.inline(child).strip() + mark
        return self.inline(child)

    def blocks(self, element: Element | None) -> Iterable[str]:
        """Returns the paragraphs of a description."""
        for para in [] if element is None else element:
            if para.tag == "para":
                yield from self.paragraph(para)

    def paragraph(self, para: Element) -> Iterable[str]:
        text = escaped(para.text)
        for child in para:
            block = self.block(child)
            if block is None:
                text += self.one_inline(child)
            else:
                if text.strip():
                    yield text.strip()
                yield from block
                text = ""
            text += escaped(child.tail)
        if text.strip():
            yield text.strip()

    def block(self, child: Element) -> list[str] | None:
        if child.tag in ("verbatim", "preformatted"):
            return ["```cpp\n" + "".join(child.itertext()).strip("\n") + "\n```"]
        if child.tag == "programlisting":
            lines = [
                "".join(" " if part.tag == "sp" else (part.text or "") for part in walk(line))
                for line in child
            ]
            return ["```cpp\n" + "\n".join(lines).strip("\n") + "\n```"]
        if child.tag in ("itemizedlist", "orderedlist"):
            return [
                "\n".join("- " + " ".join(self.blocks(item)) for item in child.findall("listitem"))
            ]
        if child.tag == "simplesect":
            title = all_text(child, "title") or child.get("kind", "").capitalize()
            return [f"**{title}:** " + "\n\n".join(self.blocks(child))]
        if child.tag == "parameterlist":
            return [
                "\n".join(
                    f"- {code(all_text(item, 'parameternamelist'))}: "
                    + " ".join(self.blocks(item.find("parameterdescription")))
                    for item in child.findall("parameteritem")
                )
            ]
        return None

    def description(self, element: Element) -> list[str]:
        found: list[str] = []
        for tag in ("briefdescription", "detaileddescription"):
            found += self.blocks(element.find(tag))
        return found

    # Members.

    def member(self, member: Element, within: str, depth: int, before: str) -> list[str]:
        """Returns the member's text. An overload of `before` gets no heading."""
        name = member.findtext("name", "")
        heading = f"{'#' * depth} {escaped(name)} {{#{anchor(within + ' ' + name)}}}"
        lines = [] if name == before else [heading]
        lines.append("```cpp\n" + signature(member) + "\n```")
        lines += self.description(member)
        values = [
            f"- {code(value.findtext('name', ''))}"
            + (": " + " ".join(said) if (said := self.description(value)) else "")
            for value in member.findall("enumvalue")
        ]
        if values:
            lines.append("\n".join(values))
        return lines

    def type_page(self, compound: Element) -> list[str]:
        name = name_of(compound)
        depth = min(2 + re.sub(r"^(libtorch|columns)::", "", name).count("::"), 4)
        lines = [f"{'#' * depth} {name} {{#{anchor(name)}}}", *self.description(compound)]
        fields: list[str] = []
        before = ""
        for member in sorted(compound.iter("memberdef"), key=line_of):
            if (
                member.get("prot") != "public"
                or member.get("kind") == "friend"
                or "operator" in member.findtext("name", "")
            ):
                if not is_shown_operator(member):
                    continue
            if member.get("kind") == "variable":
                said = " ".join(self.description(member))
                fields.append(
                    f"- {code(signature(member).rstrip(';'))}" + (f"<br>{said}" if said else "")
                )
            else:
                lines += flush(fields) + self.member(member, name, depth + 1, before)
                before = member.findtext("name", "")
        return lines + flush(fields)

    def page(self, header: str) -> str:
        lines = [f"# {header}", f"```cpp\n#include <{header}>\n```"]
        for compound in self.types.get(header, []):
            lines += self.type_page(compound)
        functions = self.shown_members(header)
        if functions:
            lines.append("## Functions and values")
        before = ""
        for member in functions:
            lines += self.member(member, "", 3, before)
            before = member.findtext("name", "")
        return "\n\n".join(lines) + "\n"

    def shown_members(self, header: str) -> list[Element]:
        found = self.members.get(header, [])
        return [
            member
            for member in found
            if "operator" not in member.findtext("name", "") and member.get("kind") != "friend"
        ]

    def overview(self) -> str:
        lines = [
            "# C++ reference",
            "The public headers. [C++](../../docs/cpp.md) shows them at work. `shardwise/shardwise.h` includes what the first day "
            "needs, and `shardwise/advanced.h` all of the core. `shardwise/loader.h`, `shardwise/video.h` and "
            "`shardwise/libtorch.h` belong to the components of these names.",
        ]
        for room, title in ROOMS.items():
            rows = []
            for header in self.headers():
                if header.split("/")[1] != room:
                    continue
                named = [
                    f"[{code(name_of(t))}]({self.page_of[t.get('id', '')]})"
                    for t in self.types.get(header, [])
                    if "::" not in name_of(t)
                ]
                functions = dict.fromkeys(
                    m.findtext("name", "")
                    for m in self.shown_members(header)
                    if m.get("kind") == "function"
                )
                named += [
                    f"[{code(name + '()')}]({page_name(header)}#{anchor(name)})"
                    for name in functions
                ]
                rows.append(
                    f"- [{header.removeprefix('shardwise/')}]({page_name(header)}): {', '.join(named) or 'names of types'}"
                )
            if rows:
                lines += [f"## {title}", "\n".join(rows)]
        return "\n\n".join(lines) + "\n"


def walk(element: Element) -> Iterable[Element]:
    """Yields an element's parts in order: elements without their tails, and the tails as
    elements."""
    yield element
    for child in element:
        yield from walk(child)
        tail = ElementTree.Element("tail")
        tail.text = child.tail
        yield tail


def all_text(element: Element, tag: str) -> str:
    child = element.find(tag)
    return "" if child is None else "".join(child.itertext()).strip()


def flush(fields: list[str]) -> list[str]:
    found = ["\n".join(fields)] if fields else []
    fields.clear()
    return found


def header_of(element: Element) -> str:
    location = element.find("location")
    return "" if location is None else (location.get("file") or "")


def line_of(element: Element) -> int:
    location = element.find("location")
    return 0 if location is None else int(location.get("line", "0"))


def name_of(compound: Element) -> str:
    return re.sub(r"^shardwise::", "", compound.findtext("compoundname", "")).replace(" ", "")


def page_name(header: str) -> str:
    return header.removeprefix("shardwise/").removesuffix(".h").replace("/", "-") + ".md"


def anchor(name: str) -> str:
    """Returns the anchor of a type or member. Spells an operator by the codes of its characters."""
    words = re.sub(
        r"operator(\W+)$", lambda found: "operator" + "".join(f"{ord(c):x}" for c in found[1]), name
    )
    return re.sub(r"\W+", "-", words.replace("~", "destroy-")).strip("-").lower()


def escaped(text: str | None) -> str:
    return re.sub(r"([\\`*_<\[\]#|{}])", r"\\\1", re.sub(r"\s+", " ", text or ""))


def code(text: str) -> str:
    return f"`{text}`"


def is_shown_operator(member: Element) -> bool:
    return member.get("prot") == "public" and member.findtext("name") in (
        "operator[]",
        "operator()",
        "operator bool",
        "operator*",
    )


def signature(member: Element) -> str:
    """Returns a declaration as in the header, without namespaces. A long one has one parameter per
    line."""
    kind, name = member.get("kind"), member.findtext("name", "")
    if kind == "enum":
        return f"enum class {name};" if member.get("strong") == "yes" else f"enum {name};"
    if kind == "typedef":
        return "using " + name + " = " + tidy(all_text(member, "type")) + ";"
    definition = tidy(member.findtext("definition", ""))
    definition = re.sub(r"(?:\w+::)+(?=(?:operator\W|~)?" + re.escape(name) + r"$)", "", definition)
    if kind == "variable":
        return tidy(definition + " " + (member.findtext("initializer") or "")).strip() + ";"
    arguments = (
        tidy(member.findtext("argsstring", ""))
        .replace("=default", " = default")
        .replace("=delete", " = delete")
    )
    arguments = arguments.replace("=nullptr", " = nullptr").replace("={}", " = {}")
    if len(definition + arguments) > 88 and member.find("param") is not None:
        inside, _, after = arguments[1:].rpartition(")")
        parts = re.split(r", (?![^<(]*[>)])", inside)
        arguments = "(\n    " + ",\n    ".join(parts) + ")" + after
    return definition + arguments + ";"


def tidy(text: str) -> str:
    text = (
        re.sub(r"\s+", " ", text)
        .replace("< ", "<")
        .replace(" >", ">")
        .replace("shardwise::", "")
        .replace(" &", "& ")
        .replace(" *", "* ")
    )
    return re.sub(r"\s+", " ", re.sub(r"([&*]) (?=[,)&>]|$)", r"\1", text)).strip()


def main() -> None:
    reference = Reference(sys.argv[1])
    os.makedirs(sys.argv[2], exist_ok=True)
    pages = {
        page_name(header): reference.page(header)
        for header in reference.headers()
        if header.startswith("shardwise/")
    }
    pages["index.md"] = reference.overview()
    for name, text in pages.items():
        with open(os.path.join(sys.argv[2], name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
