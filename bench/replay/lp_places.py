"""The linear program of lp_bound.py for a machine: places between host and device, and links that routes share.

What lp_bound.py says of its unknowns holds here, too. Beside those:
- A window's copies are sums over routes. A link carries, in each window, at most its rate times the window's length over
  all routes that it is part of; so do links together that have a cap.
- Of each gap, a part has left the device, and of that a part is at neighbours, all of which count as one: at a
  checkpoint at most what they may hold together. What has left and is not there has to come from the host.
- What was written gets to the neighbours by a copy from the device, once since the write, or through the host. It may be
  copied to the host from there. What was not written since it was last there counts as having stayed there.
All of it only helps a schedule, so the optimum stays a bound.
"""
import json
import math

import lp_bound

HOST, DEVICE = "host", 0
KINDS = ("in", "out", "stage", "save", "near_in", "near_out")  # host to device, back, host to neighbour, back, neighbour to device, back


class Machine:
    """What a file of a machine says: budgets in bytes, rates in bytes a ns, routes by what they are for."""

    def __init__(self, text):
        self.budget = int(text["budgets_gib"]["0"] * lp_bound.GIB)
        self.spare = sum(int(gib * lp_bound.GIB) for place, gib in text["budgets_gib"].items() if place != "0")
        holding = {int(place) for place, gib in text["budgets_gib"].items() if place != "0" and gib > 0}
        self.rates = {name: float(rate) for name, rate in text["links"].items()}
        self.caps = [(list(names), float(rate)) for names, rate in text.get("caps", [])]
        ends = {(HOST, DEVICE): "in", (DEVICE, HOST): "out"}
        for place in holding:
            ends.update({(HOST, place): "stage", (place, HOST): "save", (place, DEVICE): "near_in", (DEVICE, place): "near_out"})
        self.routes = [(ends[a, b], list(links)) for a, b, links in text["routes"] if (a, b) in ends]

    @staticmethod
    def one_device(budget, h2d, d2h):
        return Machine({"budgets_gib": {"0": budget / lp_bound.GIB}, "links": {"in": h2d, "out": d2h}, "routes": [[HOST, 0, ["in"]], [0, HOST, ["out"]]]})


class Flows:
    """By kind of copy and window: the columns that make it up."""

    def __init__(self, windows):
        self.windows = windows
        self.columns = {kind: [[] for _ in range(windows)] for kind in KINDS}

    def add(self, kind, window, column):
        self.columns[kind][window % self.windows].append(column)


class Room:
    """By checkpoint: columns of what has left the device, and of what of that is at neighbours, with its sign."""

    def __init__(self, windows):
        self.windows = windows
        self.away = [[] for _ in range(windows)]
        self.near = [[] for _ in range(windows)]

    def leave(self, checkpoint, column):
        self.away[checkpoint % self.windows].append(column)

    def stay_near(self, checkpoint, column, sign):
        self.near[checkpoint % self.windows].append((column, sign))


def return_of(p, flows, room, first, count, size, stage):
    """A gap whose blocks come back: columns of what is away from the device, and of what has to come from the host.

    `stage` has the column of what comes to neighbours in each window of the gap; None where there are none.
    """
    away, back = p.add(count, upper=size), p.add(count)
    lost = p.add(count, upper=size) if stage else away
    near = p.add(count) if stage else None
    for i in range(count):
        room.leave(first + i, away[i])
        flows.add("in", first + i, back[i])
        later = [(lost[i + 1], -1)] if i + 1 < count else []
        if not stage:
            p.at_most([(away[i], 1), (back[i], -1)] + later, 0)
            continue
        flows.add("near_in", first + i, near[i])
        p.at_most([(lost[i], 1), (back[i], -1), (stage[i], -1)] + later, 0)
        p.at_most([(away[i], 1), (back[i], -1), (near[i], -1)] + ([(away[i + 1], -1)] if i + 1 < count else []), 0)
        p.at_most([(lost[i], 1), (away[i], -1)], 0)
        room.stay_near(first + i, away[i], 1)
        room.stay_near(first + i, lost[i], -1)
    return away, lost


def add_clean(p, flows, room, span, size, tier):
    first, count, _ = span
    stage = p.add(count) if tier else None
    for i in range(count if tier else 0):
        flows.add("stage", first + i, stage[i])
    return_of(p, flows, room, first, count, size, stage)


def add_written(p, flows, room, written, spans, size, tier):
    """Between two writes: copied to the host by each checkpoint, once, and to neighbours."""
    last = max(first + count for first, count, _ in spans)
    length = last - written - 1
    copied, out = p.add(length, upper=size), p.add(length)
    if tier:
        saved, save = p.add(length, upper=size), p.add(length)  # to the host from neighbours
        there, send, stage = p.add(length, upper=size), p.add(length), p.add(length + 1)  # ever at neighbours since
    for i in range(length):
        flows.add("out", written + i, out[i])
        p.equals([(copied[i], 1), (out[i], -1)] + ([(copied[i - 1], -1)] if i else []) + ([(save[i], -1)] if tier else []), 0)
        if tier:
            flows.add("save", written + i, save[i])
            flows.add("near_out", written + i, send[i])
            p.equals([(saved[i], 1), (save[i], -1)] + ([(saved[i - 1], -1)] if i else []), 0)
            p.at_most([(there[i], 1), (send[i], -1), (stage[i], -1)] + ([(there[i - 1], -1)] if i else []), 0)
            p.at_most([(saved[i], 1), (there[i], -1)], 0)
    for i in range(length + 1 if tier else 0):
        flows.add("stage", written + i, stage[i])
    for first, count, returns in spans:
        at = first - written - 1  # of the columns by checkpoint
        if returns:
            away, lost = return_of(p, flows, room, first, count, size, stage[at + 1 : at + 1 + count] if tier else None)
            for i in range(count):
                p.at_most([(lost[i], 1), (copied[at + i], -1)], 0)
                if tier:
                    p.at_most([(away[i], 1), (lost[i], -1), (there[at + i], -1)], 0)
            continue
        for i in range(count):
            if not tier:
                room.leave(first + i, copied[at + i])
                continue
            away, near = p.add(1, upper=size)[0], p.add(1, upper=size)[0]
            room.leave(first + i, away)
            room.stay_near(first + i, near, 1)
            p.at_most([(away, 1), (near, -1), (copied[at + i], -1)], 0)
            p.at_most([(near, 1), (there[at + i], -1)], 0)


def add_links(p, flows, machine, stalls, compute, block_ns, unit_ns, price):
    """Copies go by routes, and links carry at most what they can in a window. Returns the routes' columns by kind."""
    by_kind = {kind: [] for kind in KINDS}
    count = len(compute)
    columns = []
    for kind, links in machine.routes:
        slowest = max(block_ns(name) for name in links)
        columns.append(p.add(count, cost=price * slowest / unit_ns))
        by_kind[kind].append(columns[-1])
    for kind in KINDS:
        for w in range(count):
            if flows.columns[kind][w] or by_kind[kind]:
                p.equals([(c, 1) for c in flows.columns[kind][w]] + [(route[w], -1) for route in by_kind[kind]], 0)
    limits = [(name, [(i, block_ns(name)) for i, (_, links) in enumerate(machine.routes) if name in links]) for name in machine.rates]
    for names, rate in machine.caps:
        uses = [(i, sum(name in names for name in links)) for i, (_, links) in enumerate(machine.routes)]
        limits.append((None, [(i, n * block_ns(None, rate)) for i, n in uses if n]))
    for _, terms in limits:
        for w in range(count if terms else 0):
            p.at_most([(columns[i][w], ns / unit_ns) for i, ns in terms] + [(stalls[w], -1)], compute[w] / unit_ns)
    return by_kind


def lp_places(step, machine, windows=128, leave_out=0.0, method="highs-ipm"):
    """The bound as a dict, for a machine. A copy's latency is left out, as copies may be of any length."""
    budget = machine.budget // step.block_bytes
    if max(step.need) > budget:
        raise ValueError(f"a launch needs {max(step.need)} blocks, more than the budget of {budget}")
    tier = machine.spare >= step.block_bytes
    w = lp_bound.Windows(len(step.ns), lp_bound.choose_checkpoints(step, windows))
    ideal = sum(step.ns)
    compute = [sum(step.ns[a:b]) for a, b in zip(w.at, w.at[1:])]
    compute.append(ideal - sum(compute))

    unit = max(1.0, budget / 100)

    def block_ns(name, rate=None):  # of a unit
        return unit * step.block_bytes / (rate or machine.rates[name])

    unit_ns = min(block_ns(name) for name in machine.rates)
    p = lp_bound.Program()
    stalls = p.add(w.count, cost=1.0)
    flows, room, held = Flows(w.count), Room(w.count), [0.0] * w.count
    for (written, spans), blocks in lp_bound.group(step, w, leave_out).items():
        for first, count, _ in spans:
            for c in range(first, first + count):
                held[c % w.count] += blocks / unit
        if written is None:
            add_clean(p, flows, room, spans[0], blocks / unit, tier)
        else:
            add_written(p, flows, room, written, spans, blocks / unit, tier)
    price = 1e-5
    by_kind = add_links(p, flows, machine, stalls, compute, block_ns, unit_ns, price)
    for c in range(w.count):
        excess = step.need[w.at[c]] / unit + held[c] - budget / unit
        if excess > 0:
            p.at_most([(column, -1) for column in room.away[c]], -excess)
        if room.near[c]:
            p.at_most(room.near[c], machine.spare // step.block_bytes / unit)
    result = p.solve(method)
    if result.status != 0:
        raise RuntimeError(f"the solver found no optimum: {result.message}")
    # Each route's price is for the time of one of its links, and no link works longer than a step.
    bound = (ideal + result.fun * unit_ns) / (1 + len(machine.routes) * price)
    bound = max(ideal, math.floor(bound * (1 - 1e-6)))
    moved = {kind: int(sum(result.x[c] for route in by_kind[kind] for c in route) * unit * step.block_bytes / step.steps) for kind in KINDS}
    return {
        "workload": step.name,
        "budget_gib": machine.budget / lp_bound.GIB,
        "spare_gib": machine.spare / lp_bound.GIB,
        "steps": step.steps,
        "ideal_ns": ideal // step.steps,
        "bound_ns": bound // step.steps,
        "percent_of_ideal": round(100 * ideal / bound, 2) if bound else 100.0,
        "windows": w.count,
        "bytes": moved,
        "columns": p.columns,
    }


def read_machine(path):
    with open(path, encoding="utf-8") as file:
        return Machine(json.load(file))
