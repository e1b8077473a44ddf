"""What a trace of deepum holds (include/deepum/trace.hpp), and the steps in it. Times are microseconds."""
import collections
import statistics

MIB = 1 << 20
ABSENT, FETCHED, FAULTED, PLACED, BEFORE = range(5)
STATES = (("not on the device", "#f1f3f5"), ("fetched ahead", "#2b5fa8"), ("fetched by a page fault", "#d08a2e"),
          ("room without a copy", "#8fb8a0"), ("there before the trace begins", "#b5b5b5"))


class Trace:
    """One process of a trace: one arena."""

    def __init__(self, file, events):
        self.file, self.name, self.block, self.forgotten = file, "run", 2 * MIB, 0
        self.rows, self.uses = {}, {}
        self.marked, self.launches, self.stalls, self.faults, self.moves, self.memory, self.evicted, self.deaths = [], [], [], [], [], [], [], []
        self.copies = {"copy_in": [], "copy_out": []}
        for e in events:
            self._take(e)
        self.marked.sort()
        self.launches.sort(key=lambda e: e["args"]["launch"])
        self.moves.sort(key=lambda m: m[0])
        self.steps, self.how = [], ""

    def _take(self, e):
        phase, category, args = e["ph"], e.get("cat"), e.get("args", {})
        if phase == "M":
            if e["name"] == "process_name":
                self.name = args["name"]
            elif e["name"] == "thread_name":
                self.rows[e["tid"]] = args["name"]
            elif e["name"] == "deepum":
                self.block, self.forgotten = args["block_bytes"], args["forgotten"]
            elif e["name"] == "uses":
                self.uses[args["number"]] = args["blocks"]
        elif phase == "C":
            self.memory.append((e["ts"], args["bytes"]))
        elif category == "step":
            self.marked.append((e["ts"], e["ts"] + e["dur"], e["name"]))
        elif category == "launch":
            self.launches.append(e)
        elif category == "stall":
            self.stalls.append(e)
        elif category == "fault":
            self.faults.append(e["ts"])
        elif category in self.copies:
            self.copies[category].append(e)
            if category == "copy_in":
                self.moves.append((e["ts"] + e["dur"], args["first"], args["blocks"], FAULTED if e["name"] == "fault" else FETCHED))
        elif category == "arrived":
            state = BEFORE if e["name"] == "before" else FAULTED if e["name"] == "fault" else PLACED
            self.moves.append((e["ts"], args["first"], args["blocks"], state))
        elif category == "evicted":
            self.evicted.append(e["ts"])
            self.moves.append((e["ts"], args["first"], args["blocks"], ABSENT))
        elif category == "died":
            self.deaths.append((args["launch"], args["first"], args["blocks"]))

    def within(self, events, step):
        return [e for e in events if e["ts"] < step[1] and e["ts"] + e["dur"] > step[0]]

    def period(self):
        """Launches of the step that the policy recognised for longest; 0: none."""
        counts = collections.Counter(e["args"].get("period", 0) for e in self.launches)
        counts.pop(0, None)
        return counts.most_common(1)[0][0] if counts else 0


def mark_steps(traces):
    """Gives each trace its steps: those that the program marked, else those that a policy recognised, here or in another
    trace of the same launches, else the whole run."""
    known = max((t.period() for t in traces), default=0)
    for t in traces:
        if t.marked:
            first = t.launches[0]["ts"] if t.forgotten else 0
            t.steps, t.how = [s for s in t.marked if s[0] >= first] or t.marked, "as the program marked them"
            continue
        period = t.period() or known
        t.steps = recognised(t, period) if period else []
        t.how = f"as the library recognised them: {period} launches each"
        if not t.steps:
            end = max(e["ts"] + e["dur"] for e in t.launches)
            t.steps, t.how = [(t.launches[0]["ts"], end, "the whole run")], "no step recurs, so this is the whole run"


def recognised(trace, period):
    """Steps of so many launches in a row with the same names, back from the last that was recognised in one."""
    names = [e["name"] for e in trace.launches]
    with_period = [i for i, e in enumerate(trace.launches) if e["args"].get("period") == period]
    last = with_period[-1] if with_period else len(names) - 1
    first = last
    while first >= period and names[first] == names[first - period]:
        first -= 1
    first = max(0, first - period + 1)
    if last - first + 1 < 2 * period:
        return []
    # A step begins where the device had nothing to do for longest.
    begins = [e["ts"] for e in trace.launches]
    ends = [e["ts"] + e["dur"] for e in trace.launches]

    def gap(phase):
        return statistics.median(begins[i] - ends[i - 1] for i in range(phase, last + 1, period) if i)

    cuts = list(range(max(range(first, first + period), key=gap), last + 2, period))
    whole = [(begins[a], begins[b] if b < len(begins) else max(ends)) for a, b in zip(cuts, cuts[1:])]
    return [(a, b, f"step {n}") for n, (a, b) in enumerate(whole, 1) if b > a]


def read(file, events):
    """The runs of one file, in order."""
    by = collections.defaultdict(list)
    for e in events:
        by[e["pid"]].append(e)
    return [t for t in (Trace(file, run) for _, run in sorted(by.items())) if t.launches]


# --- what a step did ---------------------------------------------------------------------------------------------------


def union(events, step):
    """Disjoint times of the step in which one of the events lasted."""
    found = []
    for a, b in sorted((max(e["ts"], step[0]), min(e["ts"] + e["dur"], step[1])) for e in events):
        if found and a <= found[-1][1]:
            found[-1][1] = max(found[-1][1], b)
        elif b > a:
            found.append([a, b])
    return found


def without(times, others):
    """The times less the others, both disjoint and in order."""
    left, i = [], 0
    for a, b in times:
        while i < len(others) and others[i][1] <= a:
            i += 1
        k = i
        while k < len(others) and others[k][0] < b:
            if others[k][0] > a:
                left.append([a, others[k][0]])
            a = max(a, others[k][1])
            k += 1
        if b > a:
            left.append([a, b])
    return left


def length(times):
    return sum(b - a for a, b in times)


class StepShares:
    """How one step spent its time, in microseconds, and what moved, in bytes."""

    def __init__(self, trace, step):
        launches, stalls = union(trace.within(trace.launches, step), step), union(trace.within(trace.stalls, step), step)
        self.time = step[1] - step[0]
        self.computing = length(without(launches, stalls))
        self.waiting = length(stalls)
        self.busy = {k: length(union(trace.within(c, step), step)) for k, c in trace.copies.items()}
        ended = {k: [e for e in c if step[0] < e["ts"] + e["dur"] <= step[1]] for k, c in trace.copies.items()}
        self.bytes = {k: sum(e["args"]["bytes"] for e in c) for k, c in ended.items()}
        self.reasons = {k: collections.Counter() for k in ended}
        for k, c in ended.items():
            for e in c:
                self.reasons[k][e["name"]] += e["args"]["bytes"]
        self.faults = sum(step[0] <= t < step[1] for t in trace.faults)


def settled(trace, count=5):
    """The last steps, which stand for what the run does once it has learned; without the first two where there are more."""
    return (trace.steps[2:] or trace.steps)[-count:]
