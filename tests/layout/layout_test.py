#!/usr/bin/env python3
"""layout.py finds what breaks its rules, and nothing else."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import layout  # noqa: E402


def complaints(rule, files):
    """`files` maps a path below include/deepum/, or below the source where it begins with /, to what it includes, or to
    its text."""
    with tempfile.TemporaryDirectory() as source:
        include = pathlib.Path(source) / "include"
        for name, what in files.items():
            path = pathlib.Path(source) / name[1:] if name.startswith("/") else include / "deepum" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(what if isinstance(what, str) else "".join(f"#include <deepum/{n}>\n" for n in what))
        return list(layout.RULES[rule](layout.Headers(include)))


def expect(rule, files, *words):
    found = complaints(rule, files)
    assert len(found) == (1 if words else 0), (rule, files, found)
    for word in words:
        assert word in found[0], (word, found)


# A header and its definitions are one, and so are not a circle.
expect("circles", {"a/x.hpp": ["a/impl/x.hpp"], "a/impl/x.hpp": ["a/x.hpp"]})
expect("circles", {"a/x.hpp": ["a/y.hpp"], "a/y.hpp": ["a/z.hpp"], "a/z.hpp": ["a/x.hpp"]}, "headers", "a/x.hpp", "a/z.hpp")
expect("circles", {"a/x.hpp": ["a/y.hpp"], "a/y.hpp": [], "a/impl/y.hpp": ["a/x.hpp"]}, "headers", "a/y.hpp")
expect("circles", {"a/x.hpp": ["b/x.hpp"], "b/x.hpp": [], "b/y.hpp": ["a/y.hpp"], "a/y.hpp": []}, "folders", "a/", "b/")
expect("circles", {"a/x.hpp": ["b/x.hpp"], "b/x.hpp": ["c/x.hpp"], "c/x.hpp": [], "c/y.hpp": ["a/y.hpp"], "a/y.hpp": []},
       "folders", "c/")
# Headers beside folders are below some and above others.
expect("circles", {"units.hpp": [], "arena.hpp": ["a/x.hpp"], "a/x.hpp": ["units.hpp"]})
expect("circles", {"arena.hpp": ["a/x.hpp"], "a/x.hpp": [], "a/y.hpp": ["arena.hpp"]}, "folders", "arena.hpp", "a/")
expect("circles", {"a/check.hpp": [], "a/whole.hpp": ["a/parts/x.hpp"], "a/parts/x.hpp": ["a/check.hpp"]})

says = "# a\n\n`x`, `y`, `in/`\n\n**May know**: `b/`, `c/only.hpp`. Nothing of `d/`.\n"
rest = {"b/x.hpp": [], "b/README.md": "`x` **May know**: nothing.", "c/only.hpp": [], "c/other.hpp": [],
        "c/README.md": "`only`, `other` **May know**: nothing.", "d/x.hpp": [], "d/README.md": "`x` **May know**: nothing.",
        "units.hpp": ["error.hpp"], "error.hpp": [], "face.hpp": ["c/only.hpp"], "a/README.md": says}
expect("knowledge", rest | {"a/x.hpp": ["b/x.hpp", "c/only.hpp", "units.hpp", "a/y.hpp"], "a/y.hpp": []})
expect("knowledge", rest | {"a/x.hpp": ["d/x.hpp"]}, "a/x.hpp", "d/x.hpp")
expect("knowledge", rest | {"a/x.hpp": ["c/other.hpp"]}, "c/other.hpp")
expect("knowledge", rest | {"a/x.hpp": ["face.hpp"]}, "face.hpp")
expect("knowledge", rest | {"a/x.hpp": [], "a/impl/x.hpp": ["d/x.hpp"]}, "d/x.hpp")
expect("knowledge", rest | {"a/x.hpp": [], "a/README.md": "`x` **May know**: `gone.hpp`."}, "gone.hpp")
expect("knowledge", rest | {"a/x.hpp": [], "a/README.md": "# a"}, "does not say")
expect("knowledge", {"a/x.hpp": []}, "no README.md")
expect("knowledge", rest | {"a/in/z.hpp": [], "a/impl/x.hpp": []})
expect("knowledge", rest | {"a/z.hpp": []}, "a/README.md", "z.hpp")

small, large = "\n" * layout.LONGEST, "\n" * (layout.LONGEST + 1)
expect("sizes", {"a/x.hpp": small, "/tests/a/x_test.cpp": small, "/bench/x.py": small, "/docs/x.md": large})
expect("sizes", {"a/x.hpp": large}, "include/deepum/a/x.hpp", str(layout.LONGEST + 1))
expect("sizes", {"a/x.hpp": "", "/tests/a/x_test.cpp": large}, "tests/a/x_test.cpp")
expect("sizes", {"a/x.hpp": "", "/tests/docs/check.py": large})
expect("sizes", {"a/x.hpp": "", "/tests/docs/check.py": small}, "tests/docs/check.py", "take it out")
print("every breach was found")
