"""What the Markdown files of the repository consist of, as far as the checks of tests/docs/check.py need it."""

import dataclasses
import pathlib
import re

FENCE = re.compile(r"^( *)(```+|~~~+)\s*([^\s`]*)\s*$")
MARKER = re.compile(r"^\s*<!--\s*compiled in ([\w./-]+)\s*-->\s*$")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
LIST_ITEM = re.compile(r"^\s*([-*+]|\d+\\?[.)])\s")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\s*<?([^)\s>]*)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


@dataclasses.dataclass
class Block:
    """A fenced block. `line` is that of its first line of code."""

    path: str
    line: int
    language: str
    code: str
    marker: str  # the preamble that the comment before it names, "" for none

    @property
    def where(self):
        return f"{self.path}:{self.line}"


@dataclasses.dataclass
class Document:
    path: str
    blocks: list
    prose: list  # (line number, text), without what is fenced
    anchors: set
    complaints: list  # of what is neither prose nor a block


def anchor_of(heading, taken):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\- ]", "", text.replace("`", "").lower()).strip().replace(" ", "-")
    found, n = text, 0
    while found in taken:
        n += 1
        found = f"{text}-{n}"
    return found


def parse(path, text):
    document = Document(path, [], [], set(), [])
    fence, block, marker = None, None, ""
    lines = text.split("\n")
    in_list = False
    for number, line in enumerate(lines, 1):
        opening = FENCE.match(line)
        if fence is not None:
            if opening and opening[2].startswith(fence) and not opening[3]:
                document.blocks.append(block)
                fence = None
            else:
                block.code += line[len(indent) :] if line.startswith(indent) else line.lstrip()
                block.code += "\n"
            continue
        if opening:
            fence, indent = opening[2], opening[1]
            block = Block(path, number + 1, opening[3], "", marker)
            marker = ""
            continue
        named = MARKER.match(line)
        if named:
            marker = named[1]
            continue
        if line.strip():
            if marker:
                document.complaints.append(f"{path}:{number}: '{marker}' is named, and no block follows")
                marker = ""
            if LIST_ITEM.match(line):
                in_list = True
            elif not line.startswith(" "):
                in_list = False
            elif line.startswith("    ") and not in_list and not lines[number - 2].strip():
                document.complaints.append(f"{path}:{number}: an indented block, which nothing checks: use a fence")
        heading = HEADING.match(line)
        if heading:
            document.anchors.add(anchor_of(heading[2], document.anchors))
        document.prose.append((number, line))
    if fence is not None:
        document.complaints.append(f"{path}:{block.line}: a block that does not end")
    return document


def paragraphs(document):
    """(line number, text) of what stands together: code spans and links go over the end of a line."""
    text, first = "", 0
    for number, line in document.prose + [(0, "")]:
        if line.strip():
            first = first if text else number
            text += line + "\n"
        elif text:
            yield first, text
            text = ""


def spans(document):
    """(line number, contents) of the code spans."""
    for first, text in paragraphs(document):
        for m in SPAN.finditer(text):
            yield first + text.count("\n", 0, m.start()), re.sub(r"\s+", " ", m[2])


def links(document):
    """(line number, target)."""
    for first, text in paragraphs(document):
        text = SPAN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        for m in LINK.finditer(text):
            yield first + text.count("\n", 0, m.start()), m[2]
        for m in DEFINITION.finditer(text):
            yield first + text.count("\n", 0, m.start()), m[1]


def read_all(source):
    """All Markdown files that belong to the repository."""
    root = pathlib.Path(source)
    paths = sorted(root.glob("*.md"))
    for folder in ("bench", "cmake", "docs", "examples", "include", "kernel-helper", "packaging", "tests"):
        paths += sorted((root / folder).rglob("*.md"))
    return [parse(str(p.relative_to(root)), p.read_text(encoding="utf-8")) for p in paths]
