"""Made-up results, and readers of the pages that are drawn from them."""
import collections
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCES = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20


# --- made-up results ---------------------------------------------------------------------------------------------------


def train_gpt(lookahead=None, step=30_000_000):
    def policy(name, ns, faults):
        return {"name": name, "step_ns": [2 * ns, ns, ns, ns, ns], "faults": [faults * 4, faults, faults, faults, faults],
                "faults_changing": [0] * 5, "bytes_in": [200 * MIB] * 5, "bytes_out": [100 * MIB] * 5, "stall_ns": [ns // 2] * 5,
                "prefetches_used": [0, 60, 70, 70, 70], "prefetches_late": [0, 3, 3, 3, 3], "prefetches_wasted": [0, 1, 2, 2, 2],
                "loss": [1.0] * 5, "table_bytes": 100}

    made = {"footprint_bytes": 332 * MIB, "budget_bytes": 132 * MIB, "device": "sim:h200_pcie5", "precision": "fp32", "evaluate": False,
            "policies": [policy("ideal", 2_000_000, 0), policy("um", 104_000_000, 441), policy("deepum", step, 1)]}
    if lookahead is not None:
        made["lookahead"] = lookahead
    return made


def gpu_bench():
    def run(system, budget, ns, faults):
        step = {"ns": ns, "loss": 1.0, "launches": 441, "faults": faults, "bytes_in": 5 * MIB, "bytes_out": 4 * MIB, "stalled_ns": 7}
        return {"system": system, "budget_bytes": budget, "median_ns": float(ns), "warm_up": [dict(step, ns=9 * ns)] * 2, "steps": [step] * 3}

    runs = [run("resident", 0, 17_000_000, 0)]
    for budget in (2048 * MIB, 1024 * MIB):
        runs += [run("um", budget, 400_000_000, 900), run("auto", budget, 98_000_000, 0)]
    return {"gpu": "NVIDIA H200 <&>", "commit": "0123456", "flags": {}, "programs": [
        {"program": "train", "description": "12 layers", "footprint_bytes": 2775 * MIB, "runs": runs}]}


def replay():
    def run(policy, ns):
        step = {"ns": ns, "faults": 10, "in_bytes": MIB, "out_bytes": MIB, "stalled_ns": 5, "prefetches_used": 9, "prefetches_late": 1,
                "prefetches_wasted": 0}
        return {"policy": policy, "memory": "home-copy", "steady_step_ns": float(ns), "steps": [step] * 4}

    return {"workload": "small", "program": "small", "footprint_bytes": 20 * MIB, "budget_bytes": 14 * MIB, "h2d_gbps": 50.8, "d2h_gbps": 50.8,
            "lookahead": None, "runs": [run("um", 9_000), run("auto", 2_000)]}


def study():
    def run(ns):
        return {"step_ns": ns, "percent_of_ideal": 10.0, "in_bytes": 1 << 34, "out_bytes": 1 << 34, "faults": 3}

    return {"commit": "89abcdef0", "settings": {"gpt2": {"budget": 48, "gbps": 50.8, "steps": 8}},
            "policies": {"gpt2": {"um": run(7_940_000_000), "auto": run(1_790_000_000)}},
            "lookahead": {"gpt2": {"1": run(5_000_000_000), "32": run(2_600_000_000), "256": run(2_500_000_000)}},
            "budgets": {"gpt2": {str(b): {"deepum": run(400_000_000 // b), "auto": run(300_000_000 // b)} for b in (40, 60, 80)}}}


# --- reading the page --------------------------------------------------------------------------------------------------


class PageReader(html.parser.HTMLParser):
    """Identifiers, references, figures with their texts; complains about tags that do not match."""

    VOID = {"meta", "link", "br", "img", "hr", "input"}

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.refs, self.addresses, self.tags = [], [], [], [], collections.Counter()
        self.figures, self.metas, self.text = [], {}, ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self._note(tag, dict(attributes))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self._note(tag, dict(attributes))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open, tag, self.getpos())
        self.open.pop()

    def handle_data(self, data):
        self.text += data
        if "figure" in self.open and "svg" in self.open:
            self.figures[-1][1].append(data.strip())

    def _note(self, tag, attributes):
        self.tags[tag] += 1
        if tag == "figure":
            self.figures.append((attributes["data-plot"], [], collections.Counter()))
        if self.figures and "figure" in self.open:
            self.figures[-1][2][tag] += 1
        if tag == "meta" and "name" in attributes:
            self.metas[attributes["name"]] = attributes["content"]
        if "id" in attributes:
            self.ids.append(attributes["id"])
        for key, value in attributes.items():
            self.refs += re.findall(r"url\(#([^)]*)\)", value or "")
            if key in ("href", "src", "xlink:href"):
                self.refs.append(value[1:]) if value.startswith("#") else self.addresses.append(value)


class Folder:
    """A folder with these files as JSON, as long as it is used."""

    def __init__(self, files=None, script="report.py", python=sys.executable):
        self.made, self.script, self.python = tempfile.TemporaryDirectory(), script, python
        self.path = pathlib.Path(self.made.name)
        for name, data in (files or {}).items():
            (self.path / name).write_text(data if isinstance(data, str) else json.dumps(data))

    def __del__(self):
        self.made.cleanup()

    def report(self, *files, out="page.html"):
        done = subprocess.run([self.python, "-B", SOURCES / "bench" / "report" / self.script, "--out", self.path / out, *(self.path / f for f in files)],
                              capture_output=True, text=True)
        return done.returncode, done.stderr

    def page(self, *files, out="page.html"):
        status, said = self.report(*files, out=out)
        assert status == 0, said
        return (self.path / out).read_text()


class PageChecks:
    """What holds for every page. The class that has them sets `text`, `page`, `folder`, `files` and `tables`."""

    def figures(self, section):
        return [f for f in self.page.figures if f[0] == section]

    def test_nothing_is_fetched_from_elsewhere(self):
        self.assertNotIn("http:", self.text)
        self.assertNotIn("https:", self.text)
        self.assertNotIn("@import", self.text)
        self.assertEqual([a for a in self.page.addresses if not a.startswith("data:")], [])

    def test_no_script(self):
        self.assertEqual(self.page.tags["script"], 0)
        self.assertNotRegex(self.text, r"\son\w+=")

    def test_identifiers_are_unique_and_references_lead_somewhere(self):
        twice = [i for i, n in collections.Counter(self.page.ids).items() if n > 1]
        self.assertEqual(twice, [])
        self.assertEqual(set(self.page.refs) - set(self.page.ids), set())

    def test_it_is_for_phones_too(self):
        self.assertIn("width=device-width", self.page.metas["viewport"])
        self.assertEqual(self.page.tags["table"], self.tables)
        self.assertEqual(len(re.findall(r'<div class="scroll"[^>]*><table>', self.text)), self.tables)
        self.assertNotRegex(self.text, r'<svg[^>]*\swidth="')

    def test_the_same_files_give_the_same_page(self):
        self.assertEqual(self.text, self.folder.page(*self.files, out="again.html"))


def bad_files_fail_in_one_line(test, folder, names):
    """@param names  Pairs of a file and words that its complaint has."""
    for name, words in names:
        status, said = folder.report(name)
        test.assertEqual(status, 1)
        test.assertEqual(said.count("\n"), 1, said)
        test.assertIn(name, said)
        test.assertIn(words, said)
        test.assertFalse((folder.path / "page.html").exists())
