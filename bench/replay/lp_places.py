"""The linear program of lp_bound.py for a machine: places between host and device, and links that routes share.

What lp_bound.py says of its unknowns holds here, too. Beside those:
- A window's copies are sums over routes. A link carries, in each window, at most its rate times the window's length over
  all routes that it is part of; so do links together that have a cap.
- Of each gap, a part has left the device, and of that a part is at neighbours, all of which count as one: at a
  checkpoint at most what they may hold together. What has left and is not there has to come from the host.
- What was written gets to the neighbours by a copy from the device, once since the write, or through the host. It may be
  copied to the host from there. What was not written since it was last there counts as having stayed there.
- Where the machine says how fast rows are touched in place, a launch that only looks rows up may leave a part of their blocks
  on the host. They need no room then and do not come back for it; their rows take the time that they take at their rate,
  beside the launch's own, and load the link. What it wrote there need not be copied out. So for each launch the cheaper of the two
  is found. Which blocks of a launch those are is looked at by the sum alone.
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
        self.row_rates = sorted((int(row), float(rate)) for row, rate in text.get("row_rates", {}).items())
        self.caps = [(list(names), float(rate)) for names, rate in text.get("caps", [])]
        ends = {(HOST, DEVICE): "in", (DEVICE, HOST): "out"}
        for place in holding:
            ends.update({(HOST, place): "stage", (place, HOST): "save", (place, DEVICE): "near_in", (DEVICE, place): "near_out"})
        self.routes = [(ends[a, b], list(links)) for a, b, links in text["routes"] if (a, b) in ends]

    def row_rate(self, row):
        """Useful bytes a ns of rows that are touched in place; 0: it is not known how fast."""
        return max([rate for least, rate in self.row_rates if least <= row] or [0.0])

    def way(self, kind):
        """The links that rows come or go by; none where there are several ways."""
        ways = [links for each, links in self.routes if each == kind]
        return ways[0] if len(ways) == 1 else []

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


class Rows:
    """What launches that look rows up touch in place, instead of having it brought: columns by launch, in blocks."""

    def __init__(self, step, machine, block_unit):
        self.step, self.machine, self.unit = step, machine, block_unit
        self.cost = {}  # launch: bytes in and out, and time, of one block
        self.blocks = {}  # launch: blocks that it looks rows up in
        for (launch, segment), (bytes_in, bytes_out, row) in step.look_ups.items():
            rate = machine.row_rate(row)
            if not rate:
                continue
            slowest = [min([rate] + [machine.rates[name] for name in machine.way(kind)]) for kind in ("in", "out")]
            cost = (bytes_in, bytes_out, max(bytes_in / slowest[0], bytes_out / slowest[1]))
            # Segments of one launch differ where it has several tables: the cheapest one stands for all.
            self.cost[launch] = tuple(map(min, self.cost.get(launch, cost), cost))
            self.blocks[launch] = self.blocks.get(launch, 0) + step.segments[segment][0]
        self.touched = {launch: [] for launch in self.cost}
        self.written = {launch: [] for launch in self.cost}
        self.seen = dict.fromkeys(self.cost, 0.0)  # blocks whose way to the launch is in the program

    def leave(self, p, launch, size):
        """A column of blocks that the launch may leave where they are; None where it may not."""
        if launch not in self.cost:
            return None
        self.seen[launch] += size
        self.touched[launch].append(p.add(1, upper=size)[0])
        return self.touched[launch][-1]

    def write(self, p, launch, size):
        """A column of blocks that it has written there."""
        if launch not in self.cost:
            return None
        self.written[launch].append(p.add(1, upper=size)[0])
        return self.written[launch][-1]

    def add_limits(self, p, windows, stalls, unit_ns):
        for launch, written in self.written.items():
            if written:
                unseen = max(0.0, self.blocks[launch] / self.unit - self.seen[launch])
                p.at_most([(c, 1) for c in written] + [(c, -1) for c in self.touched[launch]], unseen)
        late = [[] for _ in range(windows.count)]
        for launch, touched in self.touched.items():
            late[windows.before(launch + 1) % windows.count - 1] += [(c, self.cost[launch][2] * self.unit / unit_ns) for c in touched]
        for w, terms in enumerate(late):
            if terms:
                p.at_most(terms + [(stalls[w], -1)], 0)

    def load(self, windows, name):
        """By window: what a link carries of them, as (column, time) in ns."""
        terms = [[] for _ in range(windows.count)]
        for kind, at in (("in", 0), ("out", 1)):
            if name in self.machine.way(kind):
                for launch, touched in self.touched.items():
                    each = self.cost[launch][at] * self.unit / self.machine.rates[name]
                    terms[windows.before(launch + 1) % windows.count - 1] += [(c, each) for c in touched]
        return terms


def return_of(p, flows, room, first, count, size, stage, in_place=None):
    """A gap whose blocks come back: columns of what is away from the device, and of what has to come from the host.

    `stage` has the column of what comes to neighbours in each window of the gap; None where there are none. `in_place` is the
    column of what need not come.
    """
    away, back = p.add(count, upper=size), p.add(count)
    lost = p.add(count, upper=size) if stage else away
    near = p.add(count) if stage else None
    for i in range(count):
        room.leave(first + i, away[i])
        flows.add("in", first + i, back[i])
        stays = [(in_place, -1)] if in_place is not None else []
        later = [(lost[i + 1], -1)] if i + 1 < count else stays
        if not stage:
            p.at_most([(away[i], 1), (back[i], -1)] + later, 0)
            continue
        flows.add("near_in", first + i, near[i])
        p.at_most([(lost[i], 1), (back[i], -1), (stage[i], -1)] + later, 0)
        p.at_most([(away[i], 1), (back[i], -1), (near[i], -1)] + ([(away[i + 1], -1)] if i + 1 < count else stays), 0)
        p.at_most([(lost[i], 1), (away[i], -1)], 0)
        room.stay_near(first + i, away[i], 1)
        room.stay_near(first + i, lost[i], -1)
    return away, lost


def add_clean(p, flows, room, span, size, tier, rows):
    first, count, _, look = span
    stage = p.add(count) if tier else None
    for i in range(count if tier else 0):
        flows.add("stage", first + i, stage[i])
    return_of(p, flows, room, first, count, size, stage, rows.leave(p, look, size))


def add_written(p, flows, room, written, write, spans, size, tier, rows):
    """Between two writes: copied to the host by each checkpoint, once, and to neighbours."""
    last = max(first + count for first, count, *_ in spans)
    length = last - written - 1
    there_already = rows.write(p, write, size)
    never_left = [(there_already, -1)] if there_already is not None else []
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
    for first, count, returns, look in spans:
        at = first - written - 1  # of the columns by checkpoint
        if returns:
            away, lost = return_of(p, flows, room, first, count, size, stage[at + 1 : at + 1 + count] if tier else None, rows.leave(p, look, size))
            for i in range(count):
                p.at_most([(lost[i], 1), (copied[at + i], -1)] + never_left, 0)
                if tier:
                    p.at_most([(away[i], 1), (lost[i], -1), (there[at + i], -1)] + never_left, 0)
            continue
        for i in range(count):
            if not tier and not never_left:
                room.leave(first + i, copied[at + i])
                continue
            if not tier:
                away = p.add(1, upper=size)[0]
                room.leave(first + i, away)
                p.at_most([(away, 1), (copied[at + i], -1)] + never_left, 0)
                continue
            away, near = p.add(1, upper=size)[0], p.add(1, upper=size)[0]
            room.leave(first + i, away)
            room.stay_near(first + i, near, 1)
            p.at_most([(away, 1), (near, -1), (copied[at + i], -1)] + never_left, 0)
            p.at_most([(near, 1), (there[at + i], -1)], 0)


def add_links(p, flows, machine, stalls, compute, block_ns, unit_ns, price, rows, windows):
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
    for name, terms in limits:
        of_rows = rows.load(windows, name)
        for w in range(count if terms else 0):
            row_terms = [(c, ns / unit_ns) for c, ns in of_rows[w]]
            p.at_most([(columns[i][w], ns / unit_ns) for i, ns in terms] + row_terms + [(stalls[w], -1)], compute[w] / unit_ns)
    return by_kind


def lp_places(step, machine, windows=128, leave_out=0.0, method="highs-ipm"):
    """The bound as a dict, for a machine. A copy's latency is left out, as copies may be of any length."""
    budget = machine.budget // step.block_bytes
    if max(step.need) > budget and not machine.row_rates:
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
    rows = Rows(step, machine, unit)
    for (written, write, spans), blocks in lp_bound.group(step, w, leave_out, bool(rows.cost)).items():
        for first, count, *_ in spans:
            for c in range(first, first + count):
                held[c % w.count] += blocks / unit
        if written is None:
            add_clean(p, flows, room, spans[0], blocks / unit, tier, rows)
        else:
            add_written(p, flows, room, written, write, spans, blocks / unit, tier, rows)
    rows.add_limits(p, w, stalls, unit_ns)
    price = 1e-5
    by_kind = add_links(p, flows, machine, stalls, compute, block_ns, unit_ns, price, rows, w)
    for c in range(w.count):
        excess = step.need[w.at[c]] / unit + held[c] - budget / unit
        if excess > 0:
            stay = [(column, -1) for column in rows.touched.get(w.at[c], [])]
            p.at_most([(column, -1) for column in room.away[c]] + stay, -excess)
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
        "in_place_bytes": {kind: int(sum(result.x[c] * rows.cost[k][at] for k, touched in rows.touched.items() for c in touched) * unit / step.steps) for at, kind in enumerate(("in", "out"))},
        "columns": p.columns,
    }


def read_machine(path):
    with open(path, encoding="utf-8") as file:
        return Machine(json.load(file))
