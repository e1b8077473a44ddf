"""Tests of bench/report/archive.py. Exit status 77 where no Python has matplotlib."""
import collections
import re
import subprocess
import sys
import unittest

from pages import Folder, PageChecks, PageReader, bad_files_fail_in_one_line, gpu_bench, replay, study, train_gpt

SECTIONS = {  # what the axes of each section's plots say
    "step-time": ["time of a step [", "policy"],
    "steps": ["page faults", "to device", "to host", "[MiB]", "step"],
    "prefetches": ["blocks in a step, mean", "policy"],
    "lookahead": ["degree N [launches]", "time of a step ["],
}
ALL = {"demo.json": train_gpt(), "n8.json": train_gpt(8, 40_000_000), "n32.json": train_gpt(32, 25_000_000), "h200.json": gpu_bench(),
       "replay.json": replay(), "results.json": study()}


def python_with_matplotlib():
    # The package of the system is for the system's Python, which need not be the first one.
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        try:
            if subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode == 0:
                return python
        except OSError:
            pass
    return None


PYTHON = python_with_matplotlib()


def folder_of(files):
    return Folder(files, "archive.py", PYTHON)


class Page(PageChecks, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder, cls.files, cls.tables = folder_of(ALL), list(ALL), 6
        cls.text = cls.folder.page(*ALL)
        cls.page = PageReader(cls.text)

    def test_every_plot_is_there_with_its_axes_labelled(self):
        self.assertEqual(set(SECTIONS), {f[0] for f in self.page.figures})
        for section, labels in SECTIONS.items():
            for _, texts, tags in self.figures(section):
                if "budget [% of the footprint]" in texts:
                    labels = ["time of a step ["]
                for label in labels:
                    self.assertTrue(any(label in t for t in texts), (section, label, texts))
                self.assertEqual(tags["svg"], 1)
                self.assertGreater(tags["path"] + tags["image"], 3, section)

    def test_each_input_has_its_plots(self):
        # Six inputs: three of train_gpt, one each of the GPU benchmark, the replay, the study, and its budgets.
        self.assertEqual(len(self.figures("step-time")), 7)
        self.assertEqual(len(self.figures("steps")), 6)
        self.assertEqual(len(self.figures("prefetches")), 4)
        self.assertEqual(len(self.figures("lookahead")), 2)

    def test_numbers_are_those_of_the_files(self):
        times = [t for _, texts, _ in self.figures("step-time") for t in texts]
        for label in ("104", "30", "17", "400", "98", "7.94", "1.79"):
            self.assertIn(label, times)
        self.assertIn("75", [t for _, texts, _ in self.figures("prefetches") for t in texts])  # 70 + 3 + 2
        flat = re.sub(r"<[^>]*>", "|", self.text)
        self.assertRegex(flat, r"um\|+132 MiB \(40 %\)\|+104.000 ms\|+1.9\|+441\|+200.0\|+100.0\|+52.000 ms")
        self.assertRegex(flat, r"auto\|+1 GiB \(37 %\)\|+98.000 ms\|+17.3\|+0\|+5.0\|+4.0\|+0.000 ms")

    def test_text_is_escaped(self):
        self.assertIn("NVIDIA H200 &lt;&amp;&gt;", self.text)
        self.assertIn("NVIDIA H200 <&>", self.page.text)


class OtherInputs(unittest.TestCase):
    def test_what_is_missing_is_said_where_it_would_be(self):
        page = PageReader(folder_of({"h200.json": gpu_bench()}).page("h200.json"))
        self.assertEqual({f[0] for f in page.figures}, {"step-time", "steps"})
        for words in ("No runs that count prefetches", "No runs with several N"):
            self.assertIn(words, page.text)

    def test_both_kinds_of_memory_of_one_file_are_two_groups(self):
        both = {"memories": [dict(train_gpt(), memory=m) for m in ("managed", "paged")]}
        page = PageReader(folder_of({"both.json": both}).page("both.json"))
        self.assertEqual(collections.Counter(f[0] for f in page.figures)["step-time"], 2)
        self.assertIn("both, paged memory", page.text)

    def test_other_files_are_named_and_left_out(self):
        page = PageReader(folder_of({"other.json": {"facts": []}, "list.json": [1], "r.json": replay()}).page("other.json", "list.json", "r.json"))
        self.assertIn("other.json: not drawn", page.text)
        self.assertIn("list.json: not drawn", page.text)

    def test_bad_files_fail_in_one_line(self):
        broken = dict(train_gpt(), policies=[{"name": "um"}])
        bad_files_fail_in_one_line(self, folder_of({"bad.json": "{", "broken.json": broken}), (
            ("bad.json", "Expecting"), ("missing.json", "No such file"), ("broken.json", "not as runs of train_gpt should be")))


if __name__ == "__main__":
    if PYTHON is None:
        print("not run: no python3 here has matplotlib")
        sys.exit(77)
    unittest.main()
