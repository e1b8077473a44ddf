"""The page of a run: a verdict, the run beside others, one step in time, and what was where."""
import collections
import math
import statistics

import traces
import verdict
from page import Page
from runs import rank, size
from svg import Drawing, short
from traces import ABSENT, BEFORE, FAULTED, FETCHED, MIB, STATES

COLOURS = {"ideal": "#3c8f5a", "resident": "#3c8f5a", "um": "#8a8a8a", "off": "#8a8a8a", "lru": "#4f9aa0", "deepum": "#d08a2e", "auto": "#2b5fa8",
           "oracle": "#7a4f9a"}
OTHERS = ("#b05a7a", "#8c5a1f", "#5b8fc7")
KERNELS = ("#3c8f5a", "#7a4f9a", "#4f9aa0", "#b05a7a", "#8c5a1f", "#9db33a")  # not those of copies and stalls
OTHER_KERNELS, COMPUTING, WAITING, IDLE, STALL, OUTWARD, LEAST = "#b5b5b5", "#3c8f5a", "#d9a9a9", "#e3e6ea", "#a33a3a", "#5b8fc7", "#1d232b"
WIDE, NARROW = 1100, 420


class Scale:
    """One unit of time for the whole page."""

    def __init__(self, ns):
        self.unit, self.ns = next(((u, n) for u, n in (("s", 1e9), ("ms", 1e6)) if ns >= n), ("us", 1e3))

    def __call__(self, ns):
        return f"{short(ns / self.ns)} {self.unit}"


def compared(runs, own, least, scale):
    """All runs by the time of a step, on one scale; of traced ones what the time went to."""
    row, left = 26, 190
    d = Drawing(WIDE, row * len(runs) + 60, left, right=70)
    longest = max(r.ns() for r in runs)
    factor = d.x_axis(longest / scale.ns, f"time of a step [{scale.unit}]") / scale.ns
    for i, r in enumerate(runs):
        y, at = d.y0 + i * row + 4, d.x0
        shares = r.shares()
        whole = r.ns() * factor
        parts = [(COLOURS.get(r.policy, OTHERS[0]), 1.0)]
        if shares:
            computing, waiting = (statistics.mean(getattr(s, k) / s.time for s in shares) for k in ("computing", "waiting"))
            parts = [(COMPUTING, computing), (WAITING, waiting), (IDLE, max(0.0, 1 - computing - waiting))]
        for fill, part in parts:
            if part > 0:
                d.rect(at, y, part * whole, row - 8, fill)
                at += part * whole
        d.text(d.x0 - 8, y + 13, r.name(), "end", ' font-weight="bold"' if r is own else "")
        end = whole + 6
        if least and end - 4 < least * factor < end + 34:  # the number would lie under the line
            end = least * factor + 6
        d.text(d.x0 + end, y + 13, short(r.ns() / scale.ns))
    if least:
        x = d.x0 + least * factor
        d.line(x, d.y0 - 4, x, d.y1, LEAST, 1.5, "5 3")
    legend = [(COMPUTING, "launches compute"), (WAITING, "launches wait for memory"), (IDLE, "neither")] if any(r.trace for r in runs) else []
    return d.svg(), legend + ([(LEAST, f"least possible, {scale(least)} (dashed)")] if least else [])


def kernel_colours(trace, step):
    """The kernels that take most of the time have a colour."""
    times = collections.Counter()
    for e in trace.within(trace.launches, step):
        times[e["name"]] += max(0, e["dur"] - e["args"]["stalled_ns"] / 1000)
    return {name: KERNELS[i] for i, (name, _) in enumerate(times.most_common(len(KERNELS)))}


def timeline(trace, step, scale):
    """Launches, copies, faults and stalls of one step, and the bytes on the device below."""
    begin, end, _ = step
    unit = scale.ns / 1000  # in microseconds
    launches = trace.within(trace.launches, step)
    fills = kernel_colours(trace, step)
    streams = sorted({e["tid"] for e in launches})

    def pieces(events, fill):
        return [(max(e["ts"] - begin, 0) / unit, (min(e["ts"] + e["dur"], end) - begin) / unit, fill(e)) for e in events]

    rows = [(trace.rows.get(s, "stream"), pieces([e for e in launches if e["tid"] == s], lambda e: fills.get(e["name"], OTHER_KERNELS))) for s in streams]
    rows.append(("stalls", pieces(trace.within(trace.stalls, step), lambda e: STALL)))
    rows.append(("to the device", pieces(trace.within(trace.copies["copy_in"], step), lambda e: STATES[FAULTED if e["name"] == "fault" else FETCHED][1])))
    rows.append(("to the host", pieces(trace.within(trace.copies["copy_out"], step), lambda e: OUTWARD)))
    row, below = 24, 80
    d = Drawing(WIDE, (len(rows) + 2) * row + below + 50, 110)
    factor = d.x_axis((end - begin) / unit, f"time in the step [{scale.unit}]")
    y = d.y0
    for name, spans in rows:
        d.text(d.x0 - 6, y + 15, name, "end")
        d.spans(y + 3, row - 6, spans, factor)
        y += row
    for name, times, fill in (("page faults", trace.faults, STATES[FAULTED][1]), ("evictions", trace.evicted, "#5b6570")):
        d.text(d.x0 - 6, y + 15, name, "end")
        d.marks(y + 3, row - 6, [(t - begin) / unit for t in times if begin <= t <= end], fill, factor)
        y += row
    held = [(t, b) for t, b in trace.memory if t < begin][-1:] + [(t, b) for t, b in trace.memory if begin <= t <= end]
    if held:
        most = max(b for _, b in held)
        up = d.y_axis(1.1 * most / MIB, "MiB", y + 10, d.y1)
        points, last = [(d.x0, d.y1)], None
        for t, b in held:
            x, top = d.x0 + max(0.0, (t - begin) / unit) * factor, d.y1 - b / MIB * up
            if last is not None:
                points.append((x, last))
            points.append((x, top))
            last = top
        points += [(d.x1, last), (d.x1, d.y1)]
        thin = [p for i, p in enumerate(points) if i == 0 or i == len(points) - 1 or round(p[0] * 2) != round(points[i - 1][0] * 2) or
                round(p[0] * 2) != round(points[i + 1][0] * 2)]
        d.path(thin, "none", "#c9d8ea")
        d.text(d.x0 - 40, y + 6, "on the device", "middle")
    named = [(c, n) for n, c in fills.items()]
    if {e["name"] for e in launches} - set(fills):
        named.append((OTHER_KERNELS, "other launches"))
    return d.svg(), named + [(STALL, "waits for blocks"), (STATES[FETCHED][1], "fetched ahead"), (STATES[FAULTED][1], "by a page fault")]


def residency(trace, steps):
    """Block by launch: what state each block is in when each launch begins. Wide and high ones are thinned out.

    @returns  Rows of the picture from the top, where each step begins in it, and how many blocks it is of.
    """
    begin, end = steps[0][0], steps[-1][1]
    launches = sorted(e["ts"] for e in trace.launches if begin <= e["ts"] < end)
    launches = launches[::math.ceil(len(launches) / 1000) or 1] or [begin]
    used = bytearray(1 + max((first + count - 1 for _, first, count, _ in trace.moves), default=0))
    for _, first, count, _ in trace.moves:
        used[first:first + count] = b"\1" * count
    places = [i for i, u in enumerate(used) if u]  # an arena may have gaps that nothing ever lies in
    shown = places[::math.ceil(len(places) / 600) or 1]
    state, columns, moves = bytearray(len(used)), [], iter(trace.moves)
    move = next(moves, None)
    for at in launches:
        while move is not None and move[0] <= at:
            _, first, count, new = move
            for b in range(first, first + count):  # what is there already stays what it was: its arrival is told again when it is kept
                if new in (ABSENT, BEFORE) or state[b] == ABSENT:
                    state[b] = new
            move = next(moves, None)
        columns.append(bytes(state[b] for b in shown))
    rows = [bytes(c[i] for c in columns) for i in reversed(range(len(shown)))] or [bytes(len(columns))]
    edges = [sum(t < s[0] for t in launches) for s in steps]
    return rows, edges, len(places)


def residency_drawing(trace):
    """Of long runs the first three steps, and the last three beside them."""
    parts = [trace.steps] if len(trace.steps) <= 6 else [trace.steps[:3], trace.steps[-3:]]
    width = WIDE // len(parts)
    drawings, seen = [], set()
    for part in parts:
        rows, edges, blocks = residency(trace, part)
        seen |= {s for row in rows for s in row}
        d = Drawing(width, 340, 60)
        d.y_axis(blocks * trace.block / MIB, "memory in use, by address [MiB]")
        d.picture(rows, [c for _, c in STATES])
        across = (d.x1 - d.x0) / len(rows[0])
        for i, (edge, step) in enumerate(zip(edges, part)):
            if i:
                d.line(d.x0 + edge * across, d.y0, d.x0 + edge * across, d.y1, LEAST, 0.6)
            following = edges[i + 1] if i + 1 < len(edges) else len(rows[0])
            d.text(d.x0 + (edge + following) / 2 * across, d.y1 + 14, step[2], "middle")
        d.text((d.x0 + d.x1) / 2, d.y1 + 29, "launch, by step", "middle")
        drawings.append(d)
    inner = "".join(f'<g transform="translate({i * width} 0)">{"".join(d.parts)}</g>' for i, d in enumerate(drawings))
    svg = f'<svg viewBox="0 0 {WIDE} 340" role="img" preserveAspectRatio="xMidYMid meet">{inner}</svg>'
    return svg, [(STATES[i][1], STATES[i][0]) for i in sorted(seen)]


def by_step(runs, key, label, factor):
    """One number of all runs, step by step."""
    lines = [(r, values) for r in runs if len(values := key(r)) > 1]
    if not lines or not any(any(v) for _, v in lines):
        return None
    d = Drawing(NARROW, 200, 66)
    up = d.y_axis(max(max(v) for _, v in lines) / factor * 1.05, label)
    longest = max(len(v) for _, v in lines)
    across = (d.x1 - d.x0) / (longest - 1)
    for n in range(1, longest + 1, math.ceil((longest - 1) / 7)):
        d.text(d.x0 + (n - 1) * across, d.y1 + 14, n, "middle")
    d.text((d.x0 + d.x1) / 2, d.y1 + 29, "step", "middle")
    legend = []
    for i, (r, values) in enumerate(lines):
        fill = COLOURS.get(r.policy, OTHERS[i % len(OTHERS)])
        d.path([(d.x0 + n * across, d.y1 - v / factor * up) for n, v in enumerate(values)], fill)
        legend.append((fill, r.policy))
    return d.svg(), legend


def bars(rows, label, factor):
    """Bars of named parts: rows of a name and [(value, colour)]."""
    d = Drawing(NARROW, 26 * len(rows) + 50, 90, right=50)
    across = d.x_axis(max(1e-9, max(sum(v for v, _ in parts) for _, parts in rows) / factor), label)
    for i, (name, parts) in enumerate(rows):
        y, at = d.y0 + 26 * i + 3, d.x0
        d.text(d.x0 - 6, y + 14, name, "end")
        for value, fill in parts:
            if value:
                d.rect(at, y, value / factor * across, 19, fill)
                at += value / factor * across
        d.text(at + 4, y + 14, short(sum(v for v, _ in parts) / factor))
    return d.svg()


REASONS = {"fault": "#d08a2e", "issued": "#4f9aa0", "predicted": "#2b5fa8", "requested": "#7a4f9a", "make_room": "#5b6570", "write_back": "#5b8fc7", "host": "#b05a7a",
           "dead": "#8fb8a0"}
PREFETCHES = (("used", "#2b5fa8", "used by a launch"), ("late", "#d08a2e", "late: faulted on their way"), ("wasted", "#a33a3a", "wasted: left unused"))


def reason_colour(name):
    return REASONS.get(name, "#b5b5b5")


def moved(own, metrics):
    """Why bytes moved, and what became of prefetches: of the metrics of the run where they are given, else of its trace."""
    drawn = []
    if metrics:
        name, data = metrics
        by, of, blocks = {"in": data["bytes_in"], "out": data["bytes_out"]}, f"{name}, all of the run", 1
        counts = {k: data.get(f"prefetches_{k}_blocks", 0) for k, _, _ in PREFETCHES}
    else:
        shares = own.shares()
        total = {k: sum((s.reasons[k] for s in shares), collections.Counter()) for k in ("copy_in", "copy_out")} if shares else {}
        by = {name: {r: b / len(shares) for r, b in total[k].items()} for name, k in (("in", "copy_in"), ("out", "copy_out"))} if shares else {}
        of = "a step, mean of the last ones"
        counts = {k: statistics.mean(v[2:] or v) for k, v in own.prefetches.items() if v}
    if any(sum(b.values()) for b in by.values()):
        rows = [({"in": "to the device", "out": "to the host"}[k], [(v, reason_colour(r)) for r, v in sorted(b.items()) if v]) for k, b in by.items()]
        seen = sorted({r for b in by.values() for r, v in b.items() if v})
        drawn.append(("Bytes by reason", of, bars(rows, "MiB", MIB), [(reason_colour(r), r.replace("_", " ")) for r in seen]))
    if any(counts.values()):
        rows = [(k, [(counts.get(k, 0), fill)]) for k, fill, _ in PREFETCHES]
        drawn.append(("Prefetches", of, bars(rows, "blocks", 1), [(fill, text) for _, fill, text in PREFETCHES]))
    return drawn


def cell(value, factor=1.0):
    return "-" if value is None else short(value / factor)


def table_rows(runs, scale, least):
    ideal = next((r.ns() for r in runs if r.policy in ("ideal", "resident")), None)
    for r in runs:
        def mean(key):
            values = r.series.get(key)
            return statistics.mean(values[2:] or values) if values else None

        shares = r.shares()
        into, out = mean("in"), mean("out")
        if into is None and shares:
            into, out = (statistics.mean(s.bytes[k] for s in shares) for k in ("copy_in", "copy_out"))
        faults = mean("faults") if mean("faults") is not None else statistics.mean(s.faults for s in shares) if shares else None
        stalled = mean("stalled") if mean("stalled") is not None else 1000 * statistics.mean(s.waiting for s in shares) if shares else None
        yield [r.name(), scale(r.ns()), cell(100 * ideal / r.ns()) if ideal else "-",
               cell(100 * least / r.ns()) if least and r.policy not in ("ideal", "resident") else "-", cell(faults), cell(into, MIB), cell(out, MIB),
               "-" if stalled is None else scale(stalled)]


def build(inputs, title):
    page = Page(title)
    own = inputs.own()
    runs = [r for r in inputs.runs if r.ns()]
    if own is None or not runs:
        page.missing("None of the files has a run in it. train_gpt --json FILE --trace FILE writes one, and so does any program with DEEPUM_TRACE=FILE.")
        for name, data in inputs.metrics:
            page.section("moved", "Why memory moved", "Metrics alone: a trace says more.")
            page.figures(moved(None, (name, data)))
        return page
    scale, least = Scale(own.ns()), verdict.least_ns(own)
    page.verdict(verdict.text(inputs, own, scale))
    page.heading(own.name(), own.detail + (f"; steps {own.trace.how}" if own.trace else ""))

    if len(runs) > 1:
        page.section("compared", "The same step under each policy", "Medians once the tables are filled, all on one scale. Of traced runs the bar says what the time went to.")
        page.figures([("Time of a step", f"{len(runs)} runs", *compared(runs, own, least, scale))], wide=True)
    if own.trace:
        step = own.trace.steps[-1]
        page.section("timeline", "One step in time" if len(own.trace.steps) > 1 else "The run in time",
                     "Launches by stream, coloured by kernel; copies each way, orange where a page fault asked for them; stalls are times that launches wait for blocks.")
        page.figures([(own.name(), step[2], *timeline(own.trace, step, scale))], wide=True)
        page.section("residency", "What is on the device",
                     "Which memory is on the device while launches follow one another, and how it came there. Of long runs the first three steps and the last three.")
        page.figures([(own.name(), f"blocks of {size(own.trace.block)}", *residency_drawing(own.trace))], wide=True)
    else:
        page.missing("No trace of this run was among the files: --trace FILE or DEEPUM_TRACE=FILE writes one, and the page then shows a step in time.")

    beside = sorted({id(r): r for r in runs if r.memory == own.memory or r is own}.values(), key=lambda r: rank(r.policy))

    def times(r):
        return r.step_ns or ([1000 * (b - a) for a, b, _ in r.trace.steps] if r.trace else [])

    drawn = [(name, "", *made) for name, made in (("Time of each step", by_step(beside, times, f"step [{scale.unit}]", scale.ns)),
                                                  ("Page faults, or blocks that were waited for", by_step(beside, lambda r: r.series.get("faults", []), "faults", 1)),
                                                  ("To the device", by_step(beside, lambda r: r.series.get("in", []), "in [MiB]", MIB)),
                                                  ("To the host", by_step(beside, lambda r: r.series.get("out", []), "out [MiB]", MIB))) if made]
    if drawn:
        page.section("steps", "Step by step", "In the first steps memory is touched for the first time and the tables are empty.")
        page.figures(drawn)
    drawn = moved(own, inputs.metrics[0] if inputs.metrics else None)
    if drawn:
        page.section("moved", "Why memory moved", "What the link carried by reason: by a page fault, for an issued or a predicted launch, to make room; and what became of prefetched blocks.")
        page.figures(drawn)
    page.section("numbers", "Numbers", "Times are medians; faults, bytes and stalls are means of the steps after the second one.")
    page.table(["run", "step", "% of ideal", "% of possible", "faults", "in [MiB]", "out [MiB]", "stalled"], table_rows(runs, scale, least))
    for name, data in inputs.metrics:
        page.heading("Metrics", name)
        page.table(["metric", "value"], [[k, f"{v:,}".replace(",", " ") if isinstance(v, int) else v] for k, v in data.items() if not isinstance(v, dict)])
    return page
