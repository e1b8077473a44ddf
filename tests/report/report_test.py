"""Tests of bench/report/report.py, the page of a run, and of the traces of programs.

With DEEPUM_FULL_TESTS in the environment, headless Chromium has to show the page without a line on its console, and
nothing may be wider than a phone; DEEPUM_SCREENSHOTS names a folder that the pictures stay in.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import unittest

from pages import MIB, SOURCES, Folder, PageChecks, PageReader, bad_files_fail_in_one_line, replay, train_gpt

sys.path.insert(0, str(SOURCES / "bench" / "report"))
import bound  # noqa: E402
import chart  # noqa: E402
import svg  # noqa: E402
import traces  # noqa: E402

SECTIONS = {  # what the axes of each section's plots say
    "compared": ["time of a step ["],
    "timeline": ["time in the step [", "stalls", "on the device"],
    "residency": ["launch, by step", "memory in use, by address [MiB]"],
    "steps": ["step"],
    "moved": ["0"],
    "numbers": [],
}
BIN = None


# --- made-up traces ----------------------------------------------------------------------------------------------------


def trace(names=("um", "auto"), steps=8, marked=True, period=0, launches=8, waits=50.0, first_step=0):
    """Steps of 1 ms. Launches of 40 us each begin 100 us after one another, after a wait; each uses two blocks of its own,
    brings them and sends others away."""
    events = []
    for pid, name in enumerate(names, 1):
        events += [{"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}},
                   {"ph": "M", "pid": pid, "tid": 10, "name": "thread_name", "args": {"name": "stream 0"}},
                   {"ph": "M", "pid": pid, "tid": 0, "name": "deepum", "args": {"block_bytes": 2 * MIB, "forgotten": 0}}]
        events += [{"ph": "M", "pid": pid, "tid": 0, "name": "uses", "args": {"number": i + 1, "blocks": [[2 * i, 2, "update"]]}} for i in range(launches)]
        for step in range(first_step, first_step + steps):
            at = 1000.0 * step
            if marked:
                events.append({"ph": "X", "pid": pid, "tid": 1, "name": f"step {step + 1}", "cat": "step", "ts": at, "dur": 990.0})
            for i in range(launches):
                t = at + 100 * i
                block = {"first": 2 * i, "blocks": 2, "bytes": 4 * MIB}
                args = {"launch": launches * step + i + 1, "stalled_ns": 1000, "uses": i + 1}
                if period and name.startswith("auto") and step >= 2:
                    args["period"] = period
                events += [{"ph": "X", "pid": pid, "tid": 10, "name": f"kernel {i}", "cat": "launch", "ts": t + 50, "dur": 40.0, "args": args},
                           {"ph": "X", "pid": pid, "tid": 3, "name": "fault" if name == "um" else "predicted", "cat": "copy_in", "ts": t, "dur": 30.0,
                            "args": block},
                           {"ph": "C", "pid": pid, "tid": 0, "name": "on the device", "ts": t + 30, "args": {"bytes": 4 * MIB}},
                           {"ph": "X", "pid": pid, "tid": 4, "name": "make_room", "cat": "copy_out", "ts": t + 60, "dur": 30.0, "args": block},
                           {"ph": "i", "s": "t", "pid": pid, "tid": 5, "name": "make_room", "cat": "evicted", "ts": t + 90, "args": block}]
                if waits:
                    events.append({"ph": "X", "pid": pid, "tid": 11, "name": "held back", "cat": "stall", "ts": t, "dur": waits, "args": {}})
                if name == "um":
                    events.append({"ph": "i", "s": "t", "pid": pid, "tid": 2, "name": "read", "cat": "fault", "ts": t, "args": {}})
    return {"displayTimeUnit": "ms", "traceEvents": events}


def demo():
    """Two kinds of memory, as train_gpt --memory both writes them."""
    def part(memory, ns):
        made = dict(train_gpt(), memory=memory, least={"step_ns": 3_000_000.0, "bytes_in": 1.0, "bytes_out": 1.0})
        auto = dict(made["policies"][2], name="auto", step_ns=[2 * ns, ns, ns, ns, ns])
        return dict(made, policies=[*made["policies"], auto])

    return {"memories": [part("managed", 26_000_000), part("paged", 4_000_000)]}


METRICS = {"launches": 64, "faults": 0, "prefetches_used_blocks": 77, "prefetches_late_blocks": 0, "prefetches_wasted_blocks": 3, "stalled_ns": 5,
           "fault_feed": "driver", "blocks_in": {"fault": 0}, "bytes_in": {"fault": 0, "predicted": 90 * MIB},
           "blocks_out": {}, "bytes_out": {"make_room": 80 * MIB}}


def verdict_of(text):
    return re.search(r'<p class="verdict">(.*?)</p>', text)[1]


# --- the page ----------------------------------------------------------------------------------------------------------


class Page(PageChecks, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = {"run.json": demo(), "trace.json": trace(("um, managed memory", "auto, managed memory")), "metrics.json": METRICS}
        cls.folder, cls.files, cls.tables = Folder(made), list(made), 2
        cls.text = cls.folder.page(*made)
        cls.page = PageReader(cls.text)

    def test_the_verdict_comes_first_in_two_sentences(self):
        self.assertLess(self.text.index('class="verdict"'), self.text.index("<h2"))
        said = verdict_of(self.text)
        self.assertEqual(len(re.findall(r"\.(?= [A-Z]|$)", said)), 2, said)
        self.assertIn("A step takes 26.0 ms under auto on managed memory: 4.0 times as fast as demand paging, and 12 % of what is possible", said)
        self.assertIn("(3.00 ms)", said)

    def test_every_section_is_there_with_its_axes_labelled(self):
        self.assertEqual(set(SECTIONS) - {"numbers"}, {f[0] for f in self.page.figures})
        for section, labels in SECTIONS.items():
            for _, texts, tags in self.figures(section):
                for label in labels:
                    self.assertTrue(any(label in t for t in texts), (section, label, texts))
                self.assertEqual(tags["svg"], 1)

    def test_only_the_own_run_is_drawn_in_time_and_all_runs_are_compared(self):
        self.assertEqual(len(self.figures("timeline")), 1)
        self.assertEqual(len(self.figures("residency")), 1)
        (_, texts, _), = self.figures("compared")
        for memory in ("managed", "paged"):
            for policy in ("ideal", "um", "deepum", "auto"):
                self.assertIn(f"{policy}, {memory} memory", texts)

    def test_one_unit_of_time(self):
        self.assertEqual(set(re.findall(r"\[(us|ms|s)\]", self.text)), {"ms"})

    def test_the_timeline_is_of_the_last_step(self):
        self.assertIn("<span>step 8</span>", self.text)
        (_, texts, _), = self.figures("timeline")
        for row in ("stream 0", "stalls", "to the device", "to the host", "page faults", "evictions", "on the device"):
            self.assertIn(row, texts)
        for name in ("kernel 0", "other launches", "waits for blocks"):
            self.assertIn(name, self.page.text)

    def test_the_map_says_how_blocks_came(self):
        (_, texts, tags), = self.figures("residency")
        self.assertEqual(tags["image"], 2)  # the first three steps, and the last three
        for step in ("step 1", "step 3", "step 6", "step 8"):
            self.assertIn(step, texts)
        legend = self.text[self.text.index('id="residency"'):self.text.index('id="steps"')]
        self.assertIn("fetched ahead", legend)
        self.assertNotIn("by a page fault", legend)

    def test_metrics_are_drawn_and_listed(self):
        numbers = [t for _, texts, _ in self.figures("moved") for t in texts]
        for value in ("90.0", "80.0", "77.0", "3.00"):
            self.assertIn(value, numbers)
        self.assertRegex(re.sub(r"<[^>]*>", "|", self.text), r"fault_feed\|+driver")

    def test_numbers_are_those_of_the_files(self):
        flat = re.sub(r"<[^>]*>", "|", self.text)
        self.assertRegex(flat, r"um, managed memory\|+104 ms\|+1.92\|+2.88\|+441\|+200\|+100\|+52.0 ms")

    def test_no_figure_is_drawn_twice(self):
        drawn = re.findall(r"<svg.*?</svg>", self.text, re.DOTALL)
        self.assertEqual(len(drawn), len(self.page.figures))
        self.assertEqual(len(set(drawn)), len(drawn))

    def test_it_never_says_that_a_trace_is_missing(self):
        self.assertNotRegex(self.page.text, r"[Nn]o trace")


class OtherInputs(unittest.TestCase):
    def page(self, *names, **made):
        folder = Folder({f"{name}.json": data for name, data in made.items()})
        text = folder.page(*(f"{name}.json" for name in (names or made)))
        return text, PageReader(text)

    def test_a_trace_alone_will_do(self):
        text, page = self.page(t=trace())
        self.assertEqual(collections.Counter(f[0] for f in page.figures), {"compared": 1, "timeline": 1, "residency": 1, "steps": 1, "moved": 1})
        self.assertIn("no faster than demand paging", verdict_of(text))
        self.assertNotRegex(page.text, r"[Nn]o trace|None of the files")

    def test_the_first_steps_do_not_count(self):
        made = trace(("auto",))
        for e in made["traceEvents"]:
            if e["name"] in ("step 1", "step 2"):
                e["dur"] = 100.0
        self.assertIn("A step takes 990 us under auto", verdict_of(self.page(own=made)[0]))

    def test_without_marks_the_steps_are_those_that_the_library_recognised(self):
        text, page = self.page(um=trace(("um, arena 1",), marked=False), own=trace(("auto, arena 1",), marked=False, period=8))
        self.assertIn("steps as the library recognised them: 8 launches each", text)
        self.assertIn("A step takes 1.00 ms under auto", verdict_of(text))
        self.assertIn("demand paging", verdict_of(text))
        self.assertIn("step 7", page.text)

    def test_where_no_step_recurs_the_whole_run_is_drawn(self):
        text, page = self.page(own=trace(("auto, arena 1",), marked=False))
        self.assertIn("The whole run takes 7.74 ms under auto", verdict_of(text))
        self.assertIn("DEEPUM_POLICY=um", verdict_of(text))
        self.assertEqual({f[0] for f in page.figures}, {"timeline", "residency", "moved"})
        self.assertNotRegex(page.text, r"[Nn]o trace")

    def test_runs_alone_are_compared_and_the_page_says_how_to_trace(self):
        text, page = self.page(r=replay())
        self.assertEqual({f[0] for f in page.figures}, {"compared", "steps", "moved"})
        self.assertIn("No trace of this run", page.text)
        self.assertIn("4.5 times as fast as demand paging", verdict_of(text))

    def test_metrics_alone_are_drawn(self):
        _, page = self.page(m=METRICS)
        self.assertEqual({f[0] for f in page.figures}, {"moved"})

    def test_what_limits_a_run_is_told_from_its_trace(self):
        def limit(**how):
            return verdict_of(self.page(own=trace(("auto",), **how))[0])

        self.assertIn("no step was recognised", limit())
        self.assertIn("while the links are busy for 24 %", limit(period=8))
        self.assertIn("the GPU has nothing to do", limit(waits=0))
        self.assertIn("Page faults limit it, 8 in a step", verdict_of(self.page(own=trace(("um",)))[0]))
        busy = trace(("auto",), period=8)
        for e in busy["traceEvents"]:
            if e.get("cat") == "copy_out":
                e["ts"], e["dur"] = e["ts"] - 60, 124.0
        self.assertIn("The link to the host limits it", verdict_of(self.page(own=busy)[0]))

    def test_text_is_escaped(self):
        text, page = self.page(own=trace(("auto, <&>",)))
        self.assertIn("auto, &lt;&amp;&gt;", text)
        self.assertIn("auto, <&>", page.text)
        self.assertIn("under &lt;b&gt;", verdict_of(self.page(own=trace(("<b>",)))[0]))

    def test_other_files_are_named_and_left_out(self):
        _, page = self.page(other={"facts": []}, list=[1], r=replay())
        self.assertIn("other.json: not drawn", page.text)
        self.assertIn("list.json: not drawn", page.text)

    def test_bad_files_fail_in_one_line(self):
        broken = dict(train_gpt(), policies=[{"name": "um"}])
        bad_files_fail_in_one_line(self, Folder({"bad.json": "{", "broken.json": broken, "events.json": {"traceEvents": [{"ph": "X"}]}}), (
            ("bad.json", "Expecting"), ("missing.json", "No such file"), ("broken.json", "not as runs of train_gpt should be"),
            ("events.json", "not as the trace of a run should be")))


# --- steps and bounds --------------------------------------------------------------------------------------------------


def read_trace(made):
    found = traces.read("t", made["traceEvents"])
    traces.mark_steps(found)
    return found


class Steps(unittest.TestCase):
    def test_recognised_steps_begin_where_the_device_was_idle_for_longest(self):
        one, = read_trace(trace(("auto",), marked=False, period=8))
        self.assertEqual([round(b - a) for a, b, _ in one.steps], [1000] * 7 + [740])  # the last one ends with its last launch
        self.assertEqual(one.steps[0][0] % 1000, 50)  # the first launch behind the gap at the end of a step

    def test_a_period_that_the_launches_do_not_have_gives_the_whole_run(self):
        one, = read_trace(trace(("auto",), marked=False, period=7))
        self.assertEqual(len(one.steps), 1)
        self.assertIn("whole run", one.how)

    def test_times_less_others(self):
        self.assertEqual(traces.without([[0, 10], [20, 30]], [[2, 3], [5, 22], [29, 40]]), [[0, 2], [3, 5], [22, 29]])
        self.assertEqual(traces.without([[0, 10], [12, 14]], [[4, 13]]), [[0, 4], [13, 14]])
        self.assertEqual(traces.without([[0, 1]], []), [[0, 1]])

    def test_shares_of_a_step(self):
        one, = read_trace(trace(("auto",)))
        s = traces.StepShares(one, one.steps[3])
        self.assertAlmostEqual(s.waiting, 400)
        self.assertAlmostEqual(s.computing, 320)
        self.assertAlmostEqual(s.busy["copy_in"], 240)
        self.assertEqual(s.bytes["copy_in"], 32 * MIB)
        self.assertEqual(s.reasons["copy_in"], {"predicted": 32 * MIB})


class Drawings(unittest.TestCase):
    def spans(self, *pieces):
        d = svg.Drawing(100, 50, 0, right=0)
        d.spans(0, 10, pieces, 1.0)
        return [tuple(re.findall(r'(?:x|width|fill)="([^"]*)"', p)) for p in d.parts]

    def test_neighbours_of_one_colour_are_drawn_as_one(self):
        self.assertEqual(self.spans((0, 10, "a"), (10, 20, "a"), (20, 30, "b"), (50, 60, "b")),
                         [("0.0", "20.0", "a"), ("20.0", "10.0", "b"), ("50.0", "10.0", "b")])

    def test_what_is_thinner_than_can_be_seen_goes_into_its_neighbour(self):
        self.assertEqual(len(self.spans(*((10 + i / 100, 10 + (i + 1) / 100, "ab"[i % 2]) for i in range(1000)))) < 60, True)

    def test_ticks_are_round_and_alike(self):
        self.assertEqual([text for _, text in svg.ticks(104, 5)], ["0", "25", "50", "75", "100"])
        self.assertEqual([text for _, text in svg.ticks(1.1, 4)], ["0", "0.5", "1.0"])

    def test_a_picture_is_a_png_of_its_size(self):
        made = svg.png([bytes([0, 1, 2]), bytes([2, 1, 0])], ["#000000", "#ffffff", "#ff0000"])
        self.assertEqual(made[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", made[16:24]), (3, 2))


class Bound(unittest.TestCase):
    RATE = 4 * MIB / 30  # bytes a microsecond

    def least(self, budget_blocks, made=None):
        one = read_trace(made or trace(("auto",)))[0]
        return bound.least_of(one, one.steps[-1], budget_blocks * 2 * MIB)

    def short_launches(self):
        made = trace(("auto",))
        for e in made["traceEvents"]:
            if e.get("cat") == "launch":
                e["dur"] = 2.0
        return made

    def test_all_but_the_budget_of_what_is_updated_over_and_over_comes_and_leaves(self):
        self.assertAlmostEqual(self.least(6, self.short_launches()), (16 - 6) * 2 * MIB / self.RATE, delta=0.2)  # both ways at the same time
        self.assertAlmostEqual(self.least(16), 8 * 40, delta=0.5)  # it fits, and computes

    def test_contents_that_are_overwritten_or_die_need_not_come(self):
        for mode in ("overwrite", "update"):
            made = self.short_launches()
            for e in made["traceEvents"]:
                if e["name"] == "uses":
                    e["args"]["blocks"][0][2] = mode
            if mode == "update":
                made["traceEvents"] += [{"ph": "i", "s": "t", "pid": 1, "tid": 5, "name": "dead", "cat": "died", "ts": 0.0,
                                         "args": {"first": 2 * i, "blocks": 2, "launch": 8 * step + i + 1}} for step in range(8) for i in range(8)]
            self.assertAlmostEqual(self.least(2, made), 8 * 2, delta=0.5)

    def test_the_rate_is_that_of_the_fastest_copies_but_for_a_twentieth(self):
        copies = [{"dur": 1.0, "args": {"bytes": size}} for size in (10, 30, 30, 1, 29)] + [{"dur": 0.1, "args": {"bytes": 3}}]
        self.assertEqual(bound.best_rate(copies), 30)
        self.assertIsNone(bound.best_rate([]))

    def test_a_trace_that_does_not_say_what_launches_use_has_none(self):
        made = trace(("auto",))
        for e in made["traceEvents"]:
            e.get("args", {}).pop("uses", None)
        self.assertIsNone(self.least(6, made))


class Chart(unittest.TestCase):
    def test_the_chart_of_the_readme_is_that_of_the_results(self):
        self.assertEqual((SOURCES / "docs" / "report" / "training.svg").read_text(), chart.chart(), "run bench/report/chart.py")


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
        self.assertEqual({f[0] for f in page.figures}, set(SECTIONS) - {"numbers"})
        self.assertLess((folder.path / "page.html").stat().st_size, 2 * MIB)

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
        self.assertEqual({f[0] for f in page.figures}, set(SECTIONS) - {"numbers"})
        self.assertLess((folder.path / "page.html").stat().st_size, 2 * MIB)

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
        made = {"run.json": demo(), "trace.json": trace(("um, managed memory", "auto, managed memory")), "metrics.json": METRICS}
        cls.folder = Folder(made)
        cls.folder.page(*made)
        # Chromium's windows are 500 wide at least, so a phone is a frame. The page has no script; this copy has one that
        # tells how wide it came out.
        page = (cls.folder.path / "page.html").read_text()
        tell = "<script>addEventListener('load', () => parent.postMessage(document.documentElement.scrollWidth + ' of ' + innerWidth, '*'))</script>"
        (cls.folder.path / "telling.html").write_text(page.replace("</body>", tell + "</body>"))
        for file in ("page", "telling"):
            (cls.folder.path / f"phone_{file}.html").write_text(
                f'<!DOCTYPE html><link rel="icon" href="data:,"><body style="margin:0"><script>onmessage = e => document.body.dataset.width = e.data</script>'
                f'<iframe src="{file}.html" style="border:0;width:{PHONE}px;height:6000px"></iframe></body>')

    def chromium(self, file, *flags, width=DESKTOP, height=6000):
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
            self.assertEqual(struct.unpack(">II", data[16:24]), (width, 6000))
            self.assertGreater(len(data), 60_000)  # else it is blank
            if kept := os.environ.get("DEEPUM_SCREENSHOTS"):
                shutil.copy(picture, kept)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", help="folder of the programs of a build")
    options, rest = parser.parse_known_args()
    BIN = options.bin
    unittest.main(argv=[sys.argv[0], *rest])
