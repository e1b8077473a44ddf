"""Tests of bench/report/report.py and of the traces of programs. Exit status 77 where no Python has matplotlib.

With DEEPUM_FULL_TESTS in the environment, headless Chromium has to show the page without a line on its console, and
nothing may be wider than a phone; DEEPUM_SCREENSHOTS names a folder that the pictures stay in.
"""
import argparse
import collections
import html.parser
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2]
REPORT = SOURCES / "bench" / "report" / "report.py"
MIB = 1 << 20
SECTIONS = {  # what the axes of each section's plots say
    "step-time": ["time of a step [", "policy"],
    "timeline": ["time in the step [", "what happens", "[MiB]"],
    "residency": ["launch, by step", "memory in use, by address [MiB]"],
    "steps": ["page faults", "to device", "to host", "[MiB]", "step"],
    "prefetches": ["blocks in a step, mean", "policy"],
    "lookahead": ["degree N [launches]", "time of a step ["],
}
BIN = None


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
        return {"policy": policy, "memory": "backed", "steady_step_ns": float(ns), "steps": [step] * 4}

    return {"workload": "small", "program": "small", "footprint_bytes": 20 * MIB, "budget_bytes": 14 * MIB, "h2d_gbps": 50.8, "d2h_gbps": 50.8,
            "lookahead": None, "runs": [run("um", 9_000), run("auto", 2_000)]}


def study():
    def run(ns):
        return {"step_ns": ns, "percent_of_ideal": 10.0, "in_bytes": 1 << 34, "out_bytes": 1 << 34, "faults": 3}

    return {"commit": "89abcdef0", "settings": {"gpt2": {"budget": 48, "gbps": 50.8, "steps": 8}},
            "policies": {"gpt2": {"um": run(7_940_000_000), "auto": run(1_790_000_000)}},
            "lookahead": {"gpt2": {"1": run(5_000_000_000), "32": run(2_600_000_000), "256": run(2_500_000_000)}},
            "budgets": {"gpt2": {str(b): {"deepum": run(400_000_000 // b), "auto": run(300_000_000 // b)} for b in (40, 60, 80)}}}


def trace(steps=8):
    events = []
    for pid, name in ((1, "um"), (2, "auto")):
        events += [{"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}},
                   {"ph": "M", "pid": pid, "tid": 10, "name": "thread_name", "args": {"name": "stream 0"}},
                   {"ph": "M", "pid": pid, "tid": 0, "name": "deepum", "args": {"block_bytes": 2 * MIB, "forgotten": 0}}]
        for step in range(steps):
            at = 1000.0 * step
            events.append({"ph": "X", "pid": pid, "tid": 1, "name": f"step {step + 1}", "cat": "step", "ts": at, "dur": 990.0})
            for i in range(8):
                t = at + 100 * i
                block = {"first": 2 * i, "blocks": 2, "bytes": 4 * MIB}
                events += [{"ph": "X", "pid": pid, "tid": 10, "name": f"kernel {i}", "cat": "launch", "ts": t + 50, "dur": 40.0,
                            "args": {"launch": 8 * step + i, "stalled_ns": 1000}},
                           {"ph": "X", "pid": pid, "tid": 11, "name": "held back", "cat": "stall", "ts": t, "dur": 50.0, "args": {}},
                           {"ph": "X", "pid": pid, "tid": 3, "name": "fault" if pid == 1 else "predicted", "cat": "copy_in", "ts": t, "dur": 30.0,
                            "args": block},
                           {"ph": "i", "s": "t", "pid": pid, "tid": 2, "name": "read", "cat": "fault", "ts": t, "args": {}},
                           {"ph": "C", "pid": pid, "tid": 0, "name": "on the device", "ts": t + 30, "args": {"bytes": 4 * MIB}},
                           {"ph": "X", "pid": pid, "tid": 4, "name": "make_room", "cat": "copy_out", "ts": t + 60, "dur": 30.0, "args": block},
                           {"ph": "i", "s": "t", "pid": pid, "tid": 5, "name": "make_room", "cat": "evicted", "ts": t + 90, "args": block}]
    return {"displayTimeUnit": "ms", "traceEvents": events}


ALL = {"demo.json": train_gpt(), "n8.json": train_gpt(8, 40_000_000), "n32.json": train_gpt(32, 25_000_000), "h200.json": gpu_bench(),
       "replay.json": replay(), "results.json": study(), "trace.json": trace()}


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

    def __init__(self, files=None):
        self.made = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.made.name)
        for name, data in (files or {}).items():
            (self.path / name).write_text(data if isinstance(data, str) else json.dumps(data))

    def __del__(self):
        self.made.cleanup()

    def report(self, *files, out="page.html"):
        done = subprocess.run([PYTHON, "-B", REPORT, "--out", self.path / out, *(self.path / f for f in files)], capture_output=True, text=True)
        return done.returncode, done.stderr

    def page(self, *files, out="page.html"):
        status, said = self.report(*files, out=out)
        assert status == 0, said
        return (self.path / out).read_text()


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Folder(ALL)
        cls.text = cls.folder.page(*ALL)
        cls.page = PageReader(cls.text)

    def figures(self, section):
        return [f for f in self.page.figures if f[0] == section]

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
        # Seven inputs: three of train_gpt, one each of the GPU benchmark, the replay, the study and its budgets.
        self.assertEqual(len(self.figures("step-time")), 7)
        self.assertEqual(len(self.figures("timeline")), 2)
        self.assertEqual(len(self.figures("residency")), 2)
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

    def test_the_timeline_is_of_the_last_step(self):
        self.assertEqual(self.text.count("<span>step 8</span>"), 2)
        for _, texts, _ in self.figures("timeline"):
            for row in ("stream 0", "stalls", "to the device", "to the host", "page faults", "evictions", "kernel 0", "other launches"):
                self.assertIn(row, texts)

    def test_the_map_says_how_blocks_came(self):
        um, auto = self.figures("residency")
        self.assertIn("fetched by a page fault", um[1])
        self.assertNotIn("fetched ahead", um[1])
        self.assertIn("fetched ahead", auto[1])
        self.assertEqual(um[2]["image"], 2)  # the first three steps, and the last three
        for step in ("1", "3", "6", "8"):
            self.assertIn(step, um[1])

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
        self.assertEqual(self.page.tags["table"], 6)
        self.assertEqual(len(re.findall(r'<div class="scroll"[^>]*><table>', self.text)), 6)
        self.assertNotRegex(self.text, r'<svg[^>]*\swidth="')

    def test_text_is_escaped(self):
        self.assertIn("NVIDIA H200 &lt;&amp;&gt;", self.text)
        self.assertIn("NVIDIA H200 <&>", self.page.text)

    def test_the_same_files_give_the_same_page(self):
        self.assertEqual(self.text, self.folder.page(*ALL, out="again.html"))


class OtherInputs(unittest.TestCase):
    def test_what_is_missing_is_said_where_it_would_be(self):
        page = PageReader(Folder({"h200.json": gpu_bench()}).page("h200.json"))
        self.assertEqual({f[0] for f in page.figures}, {"step-time", "steps"})
        for words in ("No trace was given", "No runs that count prefetches", "No runs with several N"):
            self.assertIn(words, page.text)

    def test_a_trace_alone_will_do(self):
        page = PageReader(Folder({"t.json": trace(2)}).page("t.json"))
        self.assertEqual(collections.Counter(f[0] for f in page.figures), {"timeline": 2, "residency": 2})
        self.assertIn("No runs were given", page.text)

    def test_other_files_are_named_and_left_out(self):
        page = PageReader(Folder({"other.json": {"facts": []}, "list.json": [1], "r.json": replay()}).page("other.json", "list.json", "r.json"))
        self.assertIn("other.json: not drawn", page.text)
        self.assertIn("list.json: not drawn", page.text)

    def test_bad_files_fail_in_one_line(self):
        broken = dict(train_gpt(), policies=[{"name": "um"}])
        folder = Folder({"bad.json": "{", "broken.json": broken})
        for name, words in (("bad.json", "Expecting"), ("missing.json", "No such file"), ("broken.json", "not as runs of train_gpt should be")):
            status, said = folder.report(name)
            self.assertEqual(status, 1)
            self.assertEqual(said.count("\n"), 1, said)
            self.assertIn(name, said)
            self.assertIn(words, said)
            self.assertFalse((folder.path / "page.html").exists())


# --- traces of programs ------------------------------------------------------------------------------------------------


def program(name):
    path = pathlib.Path(BIN or ".") / name
    return path if BIN and path.exists() else None


class Traces(unittest.TestCase):
    """What programs write, as viewers of the format and the report read it."""

    def check(self, path, policies, steps):
        events = json.loads(path.read_text())["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.assertEqual(list(names.values()), policies)
        spans, ends = collections.Counter(), {}
        for e in events:
            self.assertIn(e["ph"], "XCiM")
            self.assertIsInstance(e["pid"], int)
            self.assertIsInstance(e["tid"], int)
            if e["ph"] == "M":
                continue
            self.assertGreaterEqual(e["ts"], 0)
            if e["ph"] == "i":
                self.assertEqual(e["s"], "t")
            if e["ph"] == "C":
                self.assertIsInstance(e["args"]["bytes"], int)
            if e["ph"] == "X":
                row = (e["pid"], e["tid"])
                self.assertGreaterEqual(e["dur"], 0)
                self.assertGreaterEqual(e["ts"], ends.get(row, 0) - 0.001, e)
                ends[row] = e["ts"] + e["dur"]
                spans[names[e["pid"]], e["cat"]] += 1
        for policy in policies:
            self.assertEqual(spans[policy, "step"], steps)
            self.assertGreater(spans[policy, "launch"], steps)
        return names, events, spans

    def steps_agree(self, names, events, policy, faults, bytes_in):
        pid = next(p for p, n in names.items() if n == policy)
        mine = [e for e in events if e["pid"] == pid]
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in mine if e.get("cat") == "step")
        for i, (begin, end) in enumerate(spans):
            inside = [e for e in mine if e["ph"] in "Xi" and begin < e["ts"] + e.get("dur", 0) <= end]
            self.assertEqual(sum(e["cat"] == "fault" for e in inside), faults[i], (policy, i))
            if i != 0:  # before the first one copies are made that no step counts
                self.assertAlmostEqual(sum(e["args"]["bytes"] for e in inside if e["cat"] == "copy_in") / bytes_in[i], 1, delta=0.05)

    def test_train_gpt(self):
        gpt = program("train_gpt")
        if gpt is None:
            self.skipTest("no train_gpt in this build")
        folder = Folder()
        out, runs = folder.path / "trace.json", folder.path / "runs.json"
        subprocess.run([gpt, "--device=sim", "--policy=um,deepum,auto", "--budget=40%", "--layers=3", "--width=128", "--heads=4", "--context=32",
                        "--batch=4", "--steps=6", "--sample=0", f"--trace={out}", f"--json={runs}"], check=True, capture_output=True)
        names, events, spans = self.check(out, ["um", "deepum", "auto"], 6)
        self.assertEqual(spans["um", "launch"], spans["auto", "launch"])
        for p in json.loads(runs.read_text())["policies"]:
            self.steps_agree(names, events, p["name"], p["faults"], p["bytes_in"])
            for key in ("prefetches_used", "prefetches_late", "prefetches_wasted"):
                self.assertEqual(len(p[key]), 6)
            self.assertEqual(sum(p["prefetches_used"]) > 0, p["name"] != "um")
        page = PageReader(folder.page("trace.json", "runs.json"))
        self.assertEqual({f[0] for f in page.figures}, set(SECTIONS) - {"lookahead"})

    def test_deepum_replay(self):
        replayer = program("deepum-replay")
        if replayer is None:
            self.skipTest("no deepum-replay in this build")
        folder = Folder({"small.jsonl": '{"deepum_workload":1,"name":"small"}\n{"tensor":0,"bytes":8388608,"persistent":true}\n'
                         '{"tensor":1,"bytes":8388608,"persistent":true}\n{"tensor":2,"bytes":4194304}\n'
                         '{"kernel":"a","ns":100000,"in":[0],"out":[2]}\n{"kernel":"b","ns":100000,"in":[1,2],"out":[1]}\n'})
        out, runs = folder.path / "trace.json", folder.path / "runs.json"
        subprocess.run([replayer, "--policy=um,lru,auto", "--budget=14MiB", "--steps=7", f"--trace={out}", f"--json={runs}",
                        folder.path / "small.jsonl"], check=True, capture_output=True)
        names, events, spans = self.check(out, ["um", "lru", "auto"], 7)
        self.assertEqual(spans["um", "launch"], 14)
        self.assertEqual({e["name"] for e in events if e.get("cat") == "launch"}, {"a", "b"})
        self.assertGreater(spans["um", "stall"], 0)
        for r in json.loads(runs.read_text())["runs"]:
            mine = [e for e in events if names[e["pid"]] == r["policy"]]
            self.assertEqual(sum(e.get("cat") == "fault" for e in mine), sum(s["faults"] for s in r["steps"]))
            # Of the last step a copy or two may end when nobody counts any more.
            copied = sum(e["args"]["bytes"] for e in mine if e.get("cat") == "copy_in")
            self.assertLessEqual(abs(copied - sum(s["in_bytes"] for s in r["steps"])), 14 * MIB)
            held = [e["args"]["bytes"] for e in mine if e["ph"] == "C"]
            self.assertLessEqual(max(held), 14 * MIB)
        page = PageReader(folder.page("trace.json", "runs.json"))
        self.assertEqual({f[0] for f in page.figures}, set(SECTIONS) - {"lookahead"})

    def test_a_trace_that_cannot_be_written_is_found_out_at_once(self):
        gpt = program("train_gpt")
        if gpt is None:
            self.skipTest("no train_gpt in this build")
        done = subprocess.run([gpt, "--device=sim", "--steps=1000", "--trace=/no/such/folder/t.json"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/no/such/folder/t.json", done.stderr)


# --- as a browser shows it ---------------------------------------------------------------------------------------------


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE, DESKTOP = 390, 1280


@unittest.skipUnless(os.environ.get("DEEPUM_FULL_TESTS"), "DEEPUM_FULL_TESTS is not set")
class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if CHROMIUM is None:
            raise unittest.SkipTest("no chromium here")
        cls.folder = Folder(ALL)
        cls.folder.page(*ALL)
        # Chromium's windows are 500 wide at least, so a phone is a frame. The page has no script; this copy has one that
        # tells how wide it came out.
        page = (cls.folder.path / "page.html").read_text()
        tell = "<script>addEventListener('load', () => parent.postMessage(document.documentElement.scrollWidth + ' of ' + innerWidth, '*'))</script>"
        (cls.folder.path / "telling.html").write_text(page.replace("</body>", tell + "</body>"))
        for file in ("page", "telling"):
            (cls.folder.path / f"phone_{file}.html").write_text(
                f'<!DOCTYPE html><link rel="icon" href="data:,"><body style="margin:0"><script>onmessage = e => document.body.dataset.width = e.data</script>'
                f'<iframe src="{file}.html" style="border:0;width:{PHONE}px;height:12000px"></iframe></body>')

    def chromium(self, file, *flags, width=DESKTOP, height=12000):
        done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
                               f"--user-data-dir={self.folder.path / 'profile'}", f"--window-size={width},{height}", *flags,
                               (self.folder.path / file).as_uri()], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("CONSOLE", done.stderr)
        return done.stdout

    def test_nothing_is_wider_than_a_phone_and_nothing_is_said_on_the_console(self):
        shown = self.chromium("phone_telling.html", "--dump-dom", "--virtual-time-budget=5000")
        width = re.search(r'data-width="(\d+) of (\d+)"', shown)
        self.assertIsNotNone(width)
        self.assertEqual(int(width[2]), PHONE)
        self.assertLessEqual(int(width[1]), PHONE)

    def test_pictures_at_the_width_of_a_phone_and_of_a_desktop(self):
        for file, width in (("phone_page.html", 500), ("page.html", DESKTOP)):
            picture = self.folder.path / f"{width}.png"
            self.chromium(file, f"--screenshot={picture}", width=width)
            data = picture.read_bytes()
            self.assertEqual(struct.unpack(">II", data[16:24]), (width, 12000))
            self.assertGreater(len(data), 100_000)  # else it is blank
            if kept := os.environ.get("DEEPUM_SCREENSHOTS"):
                shutil.copy(picture, kept)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", help="folder of the programs of a build")
    options, rest = parser.parse_known_args()
    BIN = options.bin
    if PYTHON is None:
        print("not run: no python3 here has matplotlib")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])
