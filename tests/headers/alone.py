#!/usr/bin/env python3
"""Every header of the library compiles alone and twice, with a share of the work for each of several tests.

    alone.py INCLUDE PART OF [--without=REGEX] -- COMPILER FLAG...

A translation unit for each header would parse most of the library 250 times. A chain of headers in one unit proves the
same: each header includes all those before it by itself, so that they give it nothing that it would not have alone. The
fewest chains that have every header are computed from the #include lines; a line within an #if counts as absent, which
makes chains shorter and proves no less.

What defines in impl/ what another header declares comes with that one, at its end. Of those headers the declarations
alone are compiled too, with DEEPUM_SEPARATE_COMPILATION: they may need nothing that only the definitions include.
"""

import pathlib
import re
import subprocess
import sys

SEPARATE = "DEEPUM_SEPARATE_COMPILATION"
INCLUDE = re.compile(r"#\s*include <(deepum/[^>]+)>")


def included(text, separate):
    """The headers of the library that `text` includes in any case, or where it is not compiled separately."""
    conditions = []
    for line in map(str.strip, text.splitlines()):
        if re.match(r"#\s*if", line):
            conditions.append(not separate and line == f"#ifndef {SEPARATE}")
        elif re.match(r"#\s*el", line):
            conditions[-1] = False
        elif re.match(r"#\s*endif", line):
            conditions.pop()
        elif (m := INCLUDE.match(line)) and all(conditions):
            yield m[1]


def all_before(graph, header):
    """What `header` includes, and what that includes, without itself."""
    found, todo = set(), [header]
    while todo:
        for other in graph.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found - {header}


def chains(headers, graph):
    """The fewest lists that have every header, where each header includes all before it (Dilworth; Kuhn's matching)."""
    before = {h: all_before(graph, h) for h in headers}
    after = {a: [b for b in headers if a in before[b] and b not in before[a]] for a in headers}
    previous = {}

    def follow(a, tried):
        for b in after[a]:
            if b not in tried:
                tried.add(b)
                if b not in previous or follow(previous[b], tried):
                    previous[b] = a
                    return True
        return False

    for a in headers:
        follow(a, set())
    following = {a: b for b, a in previous.items()}
    for first in headers:
        if first not in previous:
            chain = [first]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            yield chain


def units(include, without):
    """(chain, flags) for each translation unit, the longest chains first."""
    files = {p.relative_to(include).as_posix(): p.read_text() for p in sorted(include.glob("deepum/**/*.hpp"))}
    defined = [f.replace("/impl/", "/") for f in files if "/impl/" in f]
    made = []
    for separate, headers in (
        (False, [f for f in files if "/impl/" not in f and not f.endswith("/src.hpp")]),
        (True, [*defined, *(f for f in files if f.endswith("/src.hpp"))]),
    ):
        headers = [f for f in headers if not (without and re.search(without, f.removeprefix("deepum/")))]
        graph = {f: list(included(text, separate)) for f, text in files.items()}
        made += [(chain, [f"-D{SEPARATE}"] * separate) for chain in chains(headers, graph)]
    return sorted(made, key=lambda unit: -len(unit[0]))


def main():
    own, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    include, part, of = pathlib.Path(own[0]), int(own[1]), int(own[2])
    without = next((a.removeprefix("--without=") for a in own[3:]), "")
    failed, compiled = 0, 0
    for chain, flags in units(include, without)[part - 1 :: of]:
        text = "".join(f"#include <{h}>\n#include <{h}>\n" for h in chain)
        done = subprocess.run(
            [*command, f"-I{include}", *flags, "-fsyntax-only", "-x", "c++", "-"], input=text, text=True, check=False
        )
        compiled += len(chain)
        if done.returncode:
            failed += 1
            print(f"FAILED, in one file, {' '.join(flags)}: {' '.join(chain)}", flush=True)
    print(f"{compiled} headers, {failed} failures")
    sys.exit(failed != 0 or compiled == 0)


if __name__ == "__main__":
    main()
