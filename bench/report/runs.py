"""What the page of a run is drawn from: results of programs, traces, and metrics, by policy and memory."""
import json
import pathlib
import statistics

import traces

WARM_UP = 2  # steps that tables are not yet filled in
ORDER = ("ideal", "resident", "um", "off", "lru", "deepum", "auto", "oracle")
SERIES = {"faults": "faults", "in": "bytes_in", "out": "bytes_out", "stalled": "stall_ns"}


def size(count):
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / 2**20:.4g} MiB"


def rank(policy):
    return (ORDER.index(policy) if policy in ORDER else len(ORDER), policy)


class Run:
    """One policy on one memory: numbers of a program's file, a trace, or both."""

    def __init__(self, policy, memory="", detail=""):
        self.policy, self.memory, self.detail = policy, memory, detail
        self.step_ns, self.series, self.prefetches, self.budget, self.least_ns, self.trace = [], {}, {}, None, None, None
        self.median_ns = None

    def name(self):
        return self.policy + (f", {self.memory}" if self.memory else "")

    def ns(self):
        """Of a step once the tables are filled; None where nothing says so."""
        if self.median_ns is not None:
            return self.median_ns
        if self.step_ns:
            return statistics.median(self.step_ns[WARM_UP:] or self.step_ns)
        return 1000 * statistics.median(b - a for a, b, _ in traces.settled(self.trace)) if self.trace else None

    def shares(self):
        """Of the last steps of its trace, each with how it spent its time."""
        return [traces.StepShares(self.trace, s) for s in traces.settled(self.trace)] if self.trace else []


def from_train_gpt(data):
    for part in data.get("memories", [data]):
        memory = f"{part['memory']} memory" if "memory" in part else ""
        for p in part["policies"]:
            run = Run(p["name"], memory, f"{part['device']}, footprint {size(part['footprint_bytes'])}, budget {size(part['budget_bytes'])}")
            run.step_ns, run.series = p["step_ns"], {k: p[key] for k, key in SERIES.items()}
            run.prefetches = {k: p.get(f"prefetches_{k}", []) for k in ("used", "late", "wasted")}
            run.budget, run.least_ns = part["budget_bytes"], part.get("least", {}).get("step_ns")
            yield run


def from_replay(data):
    for r in data["runs"]:
        run = Run(r["policy"], "", f"{data['program']}, footprint {size(data['footprint_bytes'])}, budget {size(data['budget_bytes'])}")
        run.step_ns, run.median_ns, run.budget = [s["ns"] for s in r["steps"]], r["steady_step_ns"], data["budget_bytes"]
        run.series = {k: [s[key] for s in r["steps"]] for k, key in
                      (("faults", "faults"), ("in", "in_bytes"), ("out", "out_bytes"), ("stalled", "stalled_ns"))}
        run.prefetches = {k: [s[f"prefetches_{k}"] for s in r["steps"]] for k in ("used", "late", "wasted")}
        yield run


KINDS = (("the trace of a run", lambda d: "traceEvents" in d, None),
         ("metrics of a run", lambda d: "launches" in d and "bytes_in" in d and "stalled_ns" in d, None),
         ("runs of train_gpt", lambda d: "memories" in d or ("policies" in d and "footprint_bytes" in d), from_train_gpt),
         ("runs of deepum-replay", lambda d: "workload" in d and "runs" in d, from_replay))


class Inputs:
    """All files together."""

    def __init__(self, paths):
        self.runs, self.traces, self.metrics, self.files = [], [], [], []
        for path in paths:
            self._add(pathlib.Path(path))
        traces.mark_steps(self.traces)
        for t in self.traces:
            self._join(t)
        self.runs.sort(key=lambda r: (r.memory, rank(r.policy)))

    def _add(self, path):
        try:
            data = json.loads(path.read_text())
        except (OSError, ValueError) as why:
            raise SystemExit(f"report.py: {path}: {why}")
        kind = next((k for k in KINDS if isinstance(data, dict) and k[1](data)), None)
        self.files.append((path.name, kind[0] if kind else "not drawn: no trace, no metrics, and no runs of train_gpt or deepum-replay"))
        try:
            if kind is KINDS[0]:
                found = traces.read(path.stem, data["traceEvents"])
                self.traces += found
                if not found:
                    self.files[-1] = (path.name, "a trace without a launch that has finished")
            elif kind is KINDS[1]:
                self.metrics.append((path.name, data))
            elif kind:
                self.runs += kind[2](data)
        except (KeyError, TypeError, AttributeError, ValueError) as why:
            raise SystemExit(f"report.py: {path}: not as {kind[0]} should be: {why!r}")

    def _join(self, trace):
        """Runs and traces of one name belong together; the first part of the name is the policy."""
        policy, _, rest = trace.name.partition(", ")
        same = [r for r in self.runs if r.policy == policy and r.trace is None and rest in ("", r.memory)]
        if same:
            same[0].trace = trace
        else:
            run = Run(policy, rest, f"trace of {trace.file}")
            run.trace = trace
            self.runs.append(run)

    def own(self):
        """The run that the page is about: a traced one before others, `auto` before other policies, none that is only there
        to be compared with."""
        def worth(run):
            return (run.trace is not None, run.policy == "auto", run.policy not in ("ideal", "resident", "um", "off"), run.ns() is not None)

        return max(self.runs, key=worth, default=None)

    def beside(self, own, policies):
        """The run of one of these policies to compare with: on the same memory if there is one."""
        found = [r for r in self.runs if r.policy in policies and r is not own and r.ns()]
        return next((r for r in found if r.memory == own.memory), found[0] if found and not own.memory else None)
