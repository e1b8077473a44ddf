#!/usr/bin/env python3
"""Tests of check.py: each kind of mistake in a document is found, at the line where it is."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import check
import documents

SOURCE = str(pathlib.Path(__file__).resolve().parents[2])


def found(checker, text, path="docs/of_a_test.md"):
    """The complaints of a checker about a document that lies there, in the repository."""
    return list(checker(SOURCE, [documents.parse(path, text), documents.parse("README.md", "# Try it\n")]))


def fence(language, code):
    return f"```{language}\n{code}\n```\n"


class Documents(unittest.TestCase):
    def test_blocks_have_their_language_place_and_preamble(self):
        d = documents.parse(
            "a.md", "# T\n\n<!-- compiled in x.cpp -->\n```cpp\none\ntwo\n```\n\n- item\n\n  ~~~sh\n  ls\n  ~~~\n"
        )
        self.assertEqual(
            [(b.language, b.line, b.code, b.marker) for b in d.blocks],
            [("cpp", 5, "one\ntwo\n", "x.cpp"), ("sh", 12, "ls\n", "")],
        )
        self.assertEqual(d.complaints, [])

    def test_what_no_block_is_is_complained_of(self):
        self.assertRegex(documents.parse("a.md", "text\n\n    code();\n").complaints[0], "a.md:3: an indented block")
        self.assertRegex(documents.parse("a.md", "```cpp\nint x;\n").complaints[0], "does not end")
        self.assertRegex(
            documents.parse("a.md", "<!-- compiled in x.cpp -->\n\ntext\n").complaints[0], "no block follows"
        )

    def test_anchors_are_those_of_github(self):
        d = documents.parse(
            "a.md", "# A `code`, and: more!\n## Two\n## Two\n## [Linked](b.md) words\n```sh\n# no heading\n```\n"
        )
        self.assertEqual(d.anchors, {"a-code-and-more", "two", "two-1", "linked-words"})

    def test_links_and_code_go_over_the_end_of_a_line(self):
        d = documents.parse("a.md", "see [a\nb](c.md) and `d [x](no.md)\ne`\n\n![p](q.png)\n\n[r]: s.md\n")
        self.assertEqual(list(documents.links(d)), [(1, "c.md"), (5, "q.png"), (7, "s.md")])
        self.assertEqual(list(documents.spans(d)), [(2, "d [x](no.md) e")])


class Links(unittest.TestCase):
    def test_what_is_there_is_no_mistake(self):
        text = (
            "[a](cuda.md) [b](../README.md#try-it) [c](#here) [d](https://example.org/x) `docs/adr/*.md`"
            " `deepum/arena.hpp`\n# Here\n"
        )
        self.assertEqual(found(check.check_links, text), [])

    def test_what_is_not_there_is_found(self):
        for text, why in (
            ("\n[a](none.md)\n", "docs/of_a_test.md:2: there is no 'none.md'"),
            ("[a](../../etc/passwd)\n", "there is no"),
            ("[a](#none)\n", "has no heading '#none'"),
            ("[a](../CMakeLists.txt#x)\n", "has no heading"),
            ("[a](http://example.org)\n", "no address"),
            ("`tests/docs/none.py`\n", "there is no file"),
        ):
            with self.subTest(text):
                self.assertRegex("\n".join(found(check.check_links, text)), why)

    def test_a_commit_that_is_not_there_is_found(self):
        git = ["git", "-C", SOURCE, "rev-parse", "--is-shallow-repository"]
        if subprocess.run(git, text=True, capture_output=True, check=False).stdout.strip() != "false":
            self.skipTest("no history")
        self.assertRegex(
            "\n".join(found(check.check_links, "a\n\nsee commit\n`0123456789`\n")),
            "of_a_test.md:3: there is no commit 0123456789",
        )


class Blocks(unittest.TestCase):
    def test_what_is_right_is_no_mistake(self):
        text = (
            fence(
                "sh",
                "./run demo   # comment\nDEEPUM_MANAGED_LIMIT=2GiB ./run gpu\nbuild/bin/train_gpt --policy all --nohold"
                " \\\n --steps=3 && cmake --preset release\ncmake --build --preset dev --target train_gpt -j 2",
            )
            + fence("json", '{"a": [1]}')
            + fence("ini", "[requires]\ndeepum/[~0.1]")
            + fence("py", "import json")
            + fence("diff", "+int main() {")
            + fence("cpp", "#include <deepum/arena.hpp>")
            + fence("cpp", "#include <vector>\nint main() {}")
            + fence("", "policy  step [ms]  faults\nauto 1.5 0")
            + "`./run report FILE` and `train_gpt --trace x.json`\n"
        )
        self.assertEqual(found(check.check_blocks, text), [])

    def test_each_mistake_is_found(self):
        for language, code, why in (
            ("sh", "echo 'x", "unexpected EOF"),
            ("sh", "./run dmeo", "no command 'dmeo'"),
            ("sh", "./run test --ful", "knows no '--ful'"),
            ("sh", "./run bench macro", "knows no 'macro'"),
            ("sh", "build/bin/train_gpt --polcy all", "train_gpt has no flag '--polcy'"),
            ("sh", "build/bin/train_gpt --nosteps", "has no flag '--nosteps'"),
            ("sh", "build/bin/train_gtp", "no program"),
            ("sh", "ls && build/bin/serve --prot 1", "no flag '--prot'"),
            ("sh", "kill $(build/bin/serve --pots 1)", "no flag '--pots'"),
            ("sh", "python3 bench/replay/lp_bound.py x --window 3", "no flag '--window'"),
            ("sh", "python3 bench/none.py", "no program"),
            ("sh", "cmake -DDEEPUM_BUILD_TEST=OFF", "no option DEEPUM_BUILD_TEST"),
            ("sh", "cmake --preset none", "no preset"),
            ("sh", "cmake --build --preset dev --target none", "no target"),
            ("json", "{'a': 1}", "property name"),
            ("ini", "x\n[", "no section headers"),
            ("py", "x = (", "was never closed"),
            ("rust", "fn main() {}", "nothing checks the language 'rust'"),
            ("cpp", "int x = 1;", "neither a program nor includes"),
            ("", "policy xyzzy", "output with 'xyzzy'"),
            ("diff", "+deepum::areena arena{gpu};", "no example has what comes: 'deepum::areena"),
            ("diff", "-int mian() {", "no example has what goes: 'int mian"),
            ("markdown", "## No such heading anywhere", "no document has the heading"),
            ("markdown", "text", "nothing can be checked"),
        ):
            with self.subTest(code):
                self.assertRegex("\n".join(found(check.check_blocks, "text\n" + fence(language, code))), why)

    def test_a_mistake_in_prose_is_found(self):
        self.assertRegex(found(check.check_blocks, "see `./run dmeo`\n")[0], "of_a_test.md:1: ./run has no command")
        self.assertRegex(found(check.check_blocks, "see `deepum-replay --seedd 3`\n")[0], "has no flag '--seedd'")

    def test_a_preamble_has_to_exist(self):
        text = "<!-- compiled in none.cpp -->\n" + fence("cpp", "int x;")
        self.assertRegex(found(check.check_blocks, text)[0], "there is no tests/docs/preambles/none.cpp")


class Compiled(unittest.TestCase):
    """The compiler is the C compiler of this machine; C++ and CUDA differ from it in namespaces alone."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(setattr, check, "PREAMBLES", check.PREAMBLES)
        check.PREAMBLES = self.folder
        (self.folder / "f.cpp").write_text(
            "#include <cstddef>\nvoid in_function(int n) {\n  {\n    // the block\n  }\n}\n"
        )

    def compiled(self, text, without=()):
        d = documents.parse("docs/of_a_test.md", text)
        return "\n".join(
            check.compile_blocks(
                [d], ".cpp", self.folder, ["c++", "-std=c++20", "-fsyntax-only", "-Wno-return-type"], without
            )
        )

    def test_programs_and_fragments_are_compiled_together(self):
        program = fence("cpp", "#include <vector>\nusing x = int;\nint main() { std::vector<x> v; }")
        part = "<!-- compiled in f.cpp -->\n" + fence(
            "cpp", "#include <string>\nstd::string n = std::to_string(3); std::size_t m = n.size();"
        )
        self.assertEqual(self.compiled(program + part + part + program), "")

    def test_blocks_are_left_out_whose_library_is_missing(self):
        text = fence("cpp", "#include <no/such.hpp>") + fence("cpp", "#include <vector>")
        self.assertRegex(self.compiled(text), "no/such.hpp")
        self.assertEqual(self.compiled(text, ["no/such.hpp"]), "")

    def test_an_error_is_told_with_its_line(self):
        part = "text\n<!-- compiled in f.cpp -->\n" + fence("cpp", "#include <string>\nint a = n;\nint b = none;")
        self.assertRegex(self.compiled(part), r"docs/of_a_test.md:6:\d+: error: .none.")
        self.assertRegex(self.compiled(fence("cpp", "\nint main() { none(); }")), r"docs/of_a_test.md:3:")

    def test_the_first_program_has_its_own_includes_alone(self):
        part = "<!-- compiled in f.cpp -->\n" + fence("cpp", "#include <vector>\n")
        self.assertRegex(self.compiled(part + fence("cpp", "int main() { std::vector<int> v; }")), "error")


class Figures(unittest.TestCase):
    def complaints(self, text, path="docs/guide.md"):
        measured = documents.parse("docs/lab.md", "took 17.830 ms and 38.0 ms\n")
        return list(check.check_figures(SOURCE, [measured, documents.parse(path, text)]))

    def test_figures_that_stand_somewhere_are_right(self):
        text = (
            "17.8 ms, 17.83 ms, 38.0; CUDA 12.2 and TensorFlow 1.13.1\n\n[99.9](https://example.org) %\n\n| a | 5 |\n"
        )
        self.assertEqual(self.complaints(text), [])

    def test_figures_that_stand_nowhere_are_found(self):
        self.assertRegex(self.complaints("a\n17.9 ms\n")[0], "docs/guide.md:2: 17.9 stands in no document")
        self.assertRegex(self.complaints("[1.5](https://example.org)\n\n| 38.0 |\n| 38.1 |\n")[0], "guide.md:4: 38.1")
        self.assertRegex(self.complaints("17.9 ms\n", "docs/cuda.md")[0], "docs/cuda.md:1: 17.9 stands in no document")

    def test_tables_of_results_are_those_of_the_raw_files(self):
        for kind, name in (("results", "gpt_step"), ("study", "policies")):
            made = check.makers(SOURCE)[kind](name)
            page = f"# T\n\n<!-- {kind}:{name} -->\n{made}\n<!-- /{kind} -->\n\n38.0 ms\n"
            self.assertEqual(self.complaints(page), [])
            digit = next(m for m in check.FIGURE.finditer(made))[0]
            wrong = self.complaints(page.replace(digit, "4321.5", 1))
            self.assertRegex(wrong[0], f"docs/guide.md:3: the table '{kind}:{name}' is not that of the raw results")
        self.assertRegex(
            self.complaints("<!-- results:none -->\n| 1 |\n<!-- /results -->\n")[0], "there is no table 'results:none'"
        )

    def test_what_a_table_of_results_says_may_be_repeated(self):
        table = check.makers(SOURCE)["results"]("gpt_step")
        figure = check.FIGURE.search(table)[0]
        page = f"<!-- results:gpt_step -->\n{table}\n<!-- /results -->\n\n"
        self.assertEqual(self.complaints(page + f"{figure} ms\n", "docs/paged_memory.md"), [])


class Messages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "include/deepum").mkdir(parents=True)
        (self.folder / "include/deepum/x.hpp").write_text(
            'void f() {\n  throw error(status::unsupported, "there are no more " +\n      std::to_string(n) + " of "\n '
            '     "them");\n}\nvoid g() { expects(n > 0, "n is positive"); }\n'
        )

    def complaints(self, guide):
        return "\n".join(check.check_messages(self.folder, [documents.parse(check.GUIDE, guide)]))

    def test_a_guide_that_has_all_is_right(self):
        self.assertEqual(self.complaints("## Messages\n\n`there are no more … of them`, `n is positive`\n"), "")

    def test_what_the_library_says_and_the_guide_does_not_is_found(self):
        self.assertRegex(
            self.complaints("## Messages\n\n`n is positive`\n"), "x.hpp:2: .* does not explain 'there are no more"
        )
        self.assertRegex(
            self.complaints("`n is positive`\n## Messages\n\n`there are no more … of them`\n"),
            "x.hpp:6: .*'n is positive'",
        )

    def test_metrics_are_those_of_the_library(self):
        (self.folder / "include/deepum/metrics.hpp").write_text(
            '      {"launches", "", "Launches.", s.launches},\n  family("up_seconds", "");\n'
        )
        guide = "`deepum_launches` `deepum_none`\n\n## Messages\n\n`there are no more … of them`, `n is positive`\n"
        complaints = self.complaints(guide)
        self.assertRegex(complaints, "does not explain the metric 'deepum_up_seconds'")
        self.assertRegex(complaints, "guide.md:1: there is no metric 'deepum_none'")
        self.assertEqual(complaints.count("metric"), 2)

    def test_what_the_guide_says_and_the_library_does_not_is_found(self):
        guide = "## Messages\n\n`there are no more … of them`, `n is positive`, `n is negative`\n"
        self.assertRegex(self.complaints(guide), "guide.md:3: no message has 'n is negative'")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
