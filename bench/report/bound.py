"""What no schedule of a traced step can beat: docs/bounds.md, "Between two moments".

Contents are looked at in blocks, as they move. Launch times are those of the trace, less what launches waited for, and
the rates of the links are the best that large copies of the run had.
"""
import bisect

import traces

NEEDS, WRITES, DIES = 1, 2, 4


def best_rate(copies):
    """Bytes a microsecond that the faster half of what was copied had, by bytes; None where there is too little."""
    rates = sorted(((e["args"]["bytes"] / e["dur"], e["args"]["bytes"]) for e in copies if e["dur"] > 0), reverse=True)
    total, seen = sum(b for _, b in rates), 0
    for rate, size in rates:
        seen += size
        if seen * 20 >= total:  # the fastest twentieth is left out: some copies end when that was noticed
            return rate
    return None


def parts_of(launches, uses, deaths):
    """{(first block, end): [(launch of the step, NEEDS | WRITES | DIES)]}: blocks that always are used together."""
    used = [uses.get(e["args"].get("uses"), []) for e in launches]
    edges = sorted({x for blocks in used for first, count, _ in blocks for x in (first, first + count)} |
                   {x for _, first, count in deaths for x in (first, first + count)})
    parts = [[] for _ in edges[1:]]

    def note(first, count, i, what):
        for p in range(bisect.bisect_left(edges, first), bisect.bisect_left(edges, first + count)):
            events = parts[p]
            if events and events[-1][0] == i and not (what | events[-1][1]) & DIES:
                events[-1][1] |= what & WRITES  # whether the old contents are needed, the first use says
            else:
                events.append([i, what])

    died = {}
    for i, first, count in deaths:
        died.setdefault(i, []).append((first, count))
    for i, blocks in enumerate(used):
        for first, count, mode in blocks:
            note(first, count, i, {"read": NEEDS, "update": NEEDS | WRITES}.get(mode, WRITES))
        for first, count in died.get(i, ()):
            note(first, count, i, DIES)
    return [(edges[p + 1] - edges[p], events) for p, events in enumerate(parts) if events]


def traffic(parts, at, budget):
    """By moment and number of moments that follow it: blocks that have to come, and blocks that have to leave."""
    count = len(at)
    coming, going = [[0.0] * count for _ in at], [[0.0] * count for _ in at]

    def before(launch):
        return bisect.bisect_right(at, launch) - 1

    for size, events in parts:
        launches = [i for i, _ in events]
        for m in range(count):
            after = bisect.bisect_left(launches, at[m])
            i, what = events[after % len(events)]
            if not what & NEEDS or events[after - 1][1] & DIES:
                continue
            coming[m][(before(i) + count - m) % count] += size
            for k in range(1, len(events) + 1):
                i, what = events[after - k]
                if what & WRITES:
                    going[before(i)][(m + count - before(i) - 1) % count] += size
                if what & (WRITES | DIES) or not what & NEEDS:
                    break
    for m in range(count):
        total = 0.0
        for k in range(count):
            total += coming[m][k]
            coming[m][k] = max(0.0, total - budget)
        total = 0.0
        for k in range(count):
            start = (m - 1 - k) % count
            total += going[start][k]
            going[start][k] = max(0.0, total - budget)
    return coming, going


def best_chain(ways):
    """The largest mean for each step of a chain of ways that closes. `ways[m][k]` leads over k + 1 moments."""
    count = len(ways)
    low, high = max(w[-1] for w in ways), max(max(w) for w in ways) * count

    def gains(least):
        best = [0.0] * count
        for _ in range(count + 1):
            changed = False
            for m, row in enumerate(ways):
                here = best[m]
                for k, way in enumerate(row):
                    to = m + k + 1
                    there = here + way
                    if to >= count:
                        to, there = to - count, there - least
                    if there > best[to] + 1e-6:
                        best[to], changed = there, True
            if not changed:
                return False
        return True

    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gains(middle) else (low, middle)
    return low


def least_of(trace, step, budget, moments=96):
    """The bound of a traced step in microseconds; None where the trace does not say what launches use.

    @param budget  Bytes of the device.
    """
    launches = [e for e in trace.launches if step[0] <= e["ts"] < step[1]]
    rates = {k: best_rate(c) for k, c in trace.copies.items()}
    if not launches or not any("uses" in e["args"] for e in launches):
        return None
    number = {e["args"]["launch"]: i for i, e in enumerate(launches)}
    deaths = [(number[last], first, count) for last, first, count in trace.deaths if last in number]
    waits = traces.union(trace.within(trace.stalls, step), step)
    begins = [a for a, _ in waits]

    def waited(e):  # a wait may lie before the launch or in it
        end = e["ts"] + e["dur"]
        first = max(0, bisect.bisect_right(begins, e["ts"]) - 1)
        return sum(max(0.0, min(b, end) - max(a, e["ts"])) for a, b in waits[first:bisect.bisect_left(begins, end)])

    busy = [max(0.0, e["dur"] - waited(e)) for e in launches]
    one_stream = len({e["tid"] for e in launches}) == 1
    computed = [0.0]
    for t in busy:  # launches of several streams may run at the same time
        computed.append(computed[-1] + (t if one_stream else 0.0))
    count = min(moments, len(launches))
    at = [m * len(launches) // count for m in range(count)]
    coming, going = traffic(parts_of(launches, trace.uses, deaths), at, budget / trace.block)
    ways = []
    for m in range(count):
        row = []
        for k in range(count):
            to = m + k + 1
            compute = (computed[-1] if to >= count else 0.0) + computed[at[to % count]] - computed[at[m]]
            times = [b[m][k] * trace.block / rates[c] for b, c in ((coming, "copy_in"), (going, "copy_out")) if rates[c]]
            row.append(max([compute, *times]))
        ways.append(row)
    return best_chain(ways)
