#!/usr/bin/env python3
"""The step time that no schedule of a workload can beat, phase by phase: a linear program.

usage: lp_bound.py STEP BUDGET_GIB [H2D_GBPS D2H_GBPS] [--both IN OUT] [--windows N] [--leave-out SHARE] [--copy-latency-ns T] [--blocks-per-copy N]
       lp_bound.py STEP --machine FILE [--windows N] [--leave-out SHARE]      (places, routes and links: lp_places.py)

STEP is what deepum-step writes: the launches of a step, and what lies between one use of a block and the next (gaps).
Needs numpy and scipy. Prints one line of JSON; times are ns, bytes are those of one step of the solution found.

What is bounded is the mean step time of a run whose state recurs, after one step or after several. A run that merely
begins and ends somewhere can put off at most one budget of copies beyond what is counted.

The unknowns. Some launches are checkpoints, the moments at which they start; a window lies between two of them. A
window takes the time of its launches and a stall of at least 0. For all blocks that the same windows use in the same
ways, and for each gap that a checkpoint falls into, the program chooses how much has left the device by each checkpoint,
and how much is copied in and out in each window. It minimises the sum of the stalls.

Its constraints hold for every schedule, so its optimum is a lower bound:
- At a checkpoint the launch's own blocks are there, and so is what lies in gaps and has not left, or has come back:
  together at most the budget. Other moments are not looked at.
- What left in a gap comes back in it, by the window of the next use. In no window does the link bring in more than its
  rate times the window's length, although a launch may use only a part of the window for a copy.
- What was written leaves only once it has been copied out since, at the same or an earlier moment, and not before the
  window of the last write. One copy serves all gaps until the next write. The other direction of the link likewise.
- Contents that are not used again, but die later, take room until then, unless they are copied out. Nothing else is
  asked of them, and nothing of dead ones.
- With --both, what each direction reaches while the other works too, a window's copies are a mix of times in which one
  direction works and times in which both do.
- Copies are fluid, blocks are divisible, and a gap that no checkpoint falls into is free. All of that only helps.
A schedule gives such a solution: count, for each gap and window, the blocks that leave for the first time and those that
come back for the last time, and take the mean over all steps; sums and means keep linear constraints. Longer windows
leave out constraints and place copies less exactly, so with fewer windows the bound is as a rule lower, never wrong.
--leave-out makes large steps smaller: the smallest sets of blocks that are treated alike are taken to need no room while
they are not used, and no copies, which makes the step easier, too.
"""
import argparse
import bisect
import json
import math
import sys

try:
    import numpy
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix
except ImportError as missing:
    if __name__ == "__main__":
        raise SystemExit(f"lp_bound.py: needs numpy and scipy ({missing}); for example: python3 -m pip install scipy")
    raise

GIB = 1 << 30


class Step:
    """What deepum-step wrote: times and needs of launches, and for each segment its blocks and gaps in order."""

    def __init__(self, text):
        if text.get("deepum_step") != 1:
            raise ValueError("not a step, version 1")
        self.name, self.steps, self.block_bytes = text["name"], text["steps"], text["block_bytes"]
        self.ns = [launch[0] for launch in text["launches"]]
        self.need = [launch[1] for launch in text["launches"]]
        self.segments = {}  # number: (blocks, [(launch, held, writes, returns)])
        for segment, blocks, launch, _, held, writes, returns in text["gaps"]:
            self.segments.setdefault(segment, (blocks, []))[1].append((launch, held, bool(writes), bool(returns)))
        # (launch, segment): what a launch that only looks rows up there reads and writes of each block, and bytes of a row
        self.look_ups = {(launch, segment): (bytes_in, bytes_out, row) for launch, segment, bytes_in, bytes_out, row in text.get("look_ups", [])}

    def held(self):
        """By launch: blocks that are used, or hold in a gap what is alive."""
        n = len(self.ns)
        change = [0] * (n + 1)
        for blocks, gaps in self.segments.values():
            for launch, held, _, _ in gaps:
                begin, end = launch + 1, launch + 1 + held
                for a, b in ((begin, min(end, n)), (0, end - n)):
                    if a < b:
                        change[a] += blocks
                        change[b] -= blocks
        all_held, total = [], 0
        for k in range(n):
            total += change[k]
            all_held.append(total + self.need[k])
        return all_held


def choose_checkpoints(step, windows):
    """The launches with the most to hold, one of each part; the parts are alike in time and launches."""
    n = len(step.ns)
    if n <= windows:
        return list(range(n))
    all_ns, held = max(1, sum(step.ns)), step.held()
    best, done = {}, 0.0
    for k in range(n):
        part = min(windows - 1, int(done * windows))
        if part not in best or held[k] > held[best[part]]:
            best[part] = k
        done += 0.75 * step.ns[k] / all_ns + 0.25 / n
    return sorted(best.values())


class Windows:
    """Where the launches of the cycle lie between checkpoints. Window w begins with checkpoint w."""

    def __init__(self, launches, checkpoints):
        self.launches, self.at, self.count = launches, checkpoints, len(checkpoints)

    def before(self, launch):
        """Checkpoints before a launch; launches and checkpoints are counted on, around the cycle."""
        return launch // self.launches * self.count + bisect.bisect_left(self.at, launch % self.launches)

    def inside(self, launch, held):
        """The first checkpoint among the `held` launches after one, and how many there are."""
        first = self.before(launch + 1)
        return first, self.before(launch + 1 + held) - first


def spans_of(gaps, windows, looked_up=()):
    """The gaps of a segment as the windows see them: chains of spans (first checkpoint, number of them, comes back, look-up).

    Between two writes one copy out serves all gaps: they are a chain. Yields (window of the write or None, look-up, spans), the
    checkpoints counted on from the window of the write. A clean gap is a chain of its own. A look-up is the launch that uses the
    segment next, or that of the write, where it is one of `looked_up`: launches that only look rows up there; else -1.
    """
    chains, written, key = {}, None, None  # `written`: the window of the last write, counted on
    launches = [launch for launch, *_ in gaps]
    look = [launch if launch in looked_up else -1 for launch in launches]
    for turn in range(2):  # what was written at the end of a step is dirty at the beginning of the next one
        for i, (launch, held, writes, returns) in enumerate(gaps):
            first, count = windows.inside(launch + turn * windows.launches, held)
            if writes:
                written, key = first - 1, i
            if turn == 1 and count:
                if written is not None:
                    shift = written // windows.count * windows.count
                    chains.setdefault(key, (written - shift, look[key], []))[2].append((first - shift, count, returns, look[(i + 1) % len(gaps)]))
                elif returns:
                    chains[-1 - i] = (None, -1, [(first % windows.count, count, True, look[(i + 1) % len(gaps)])])
            if not returns:
                written = None
    for window, write, spans in chains.values():
        yield window, write, tuple(sorted(spans))


def group(step, windows, leave_out, in_place=False):
    """Blocks by what they do: {(window of the write or None, look-up, spans): blocks}; see `spans_of`."""
    small, gone = 0, leave_out * sum(blocks for blocks, _ in step.segments.values())
    groups = {}
    for segment, (blocks, gaps) in step.segments.items():
        looked_up = {launch for launch, *_ in gaps if (launch, segment) in step.look_ups} if in_place else ()
        signature = tuple(sorted(spans_of(gaps, windows, looked_up), key=lambda c: (c[0] is not None, c)))
        if signature:
            groups[signature] = groups.get(signature, 0) + blocks
    chains = {}
    for signature, blocks in sorted(groups.items(), key=lambda item: item[1]):
        small += blocks
        if small > gone:
            for chain in signature:  # chains share no copies, so each is merged with the like ones of other segments
                chains[chain] = chains.get(chain, 0) + blocks
    return chains


class Program:
    """Rows and columns of a linear program, in sparse form."""

    def __init__(self):
        self.columns = 0
        self.upper, self.cost = [], []
        self.equal, self.most = ([], [], [], []), ([], [], [], [])  # rows, columns, values, right-hand sides

    def add(self, count, upper=math.inf, cost=0.0):  # columns, of at least 0
        first = self.columns
        self.columns += count
        self.upper += [upper] * count
        self.cost += [cost] * count
        return range(first, first + count)

    @staticmethod
    def _row(table, terms, right):
        rows, columns, values, rights = table
        for column, value in terms:
            rows.append(len(rights))
            columns.append(column)
            values.append(value)
        rights.append(right)

    def at_most(self, terms, right):
        self._row(self.most, terms, right)

    def equals(self, terms, right):
        self._row(self.equal, terms, right)

    def solve(self, method):
        def matrix(table):
            rows, columns, values, rights = table
            if not rights:
                return None, None
            return coo_matrix((values, (rows, columns)), shape=(len(rights), self.columns)).tocsr(), numpy.array(rights)

        most, most_right = matrix(self.most)
        equal, equal_right = matrix(self.equal)
        bounds = numpy.array([(0, u) for u in self.upper])
        return linprog(self.cost, A_ub=most, b_ub=most_right, A_eq=equal, b_eq=equal_right, bounds=bounds, method=method)


def mixes(h2d, d2h, in_both, out_both):
    """Which bytes fit into a time t: those with a * bytes in + b * bytes out <= t for each pair (a, b)."""
    if in_both / h2d + out_both / d2h <= 1:
        return [(1 / h2d, 1 / d2h)]  # both at once gain nothing
    return [(1 / h2d, (1 - in_both / h2d) / out_both), ((1 - out_both / d2h) / in_both, 1 / d2h)]


def lp_bound(step, budget_blocks, h2d=50.8, d2h=50.8, windows=128, latency_ns=0, blocks_per_copy=64, leave_out=0.0, method="highs-ipm", both=None):
    """The bound as a dict; rates in GB/s, that is bytes a ns."""
    worst = max(step.need)
    if worst > budget_blocks:
        raise ValueError(f"a launch needs {worst} blocks, more than the budget of {budget_blocks}")
    per_block = [step.block_bytes / rate + latency_ns / blocks_per_copy for rate in (h2d, d2h)]  # ns
    shared = [[step.block_bytes * each for each in line] for line in mixes(h2d, d2h, *both)] if both else []  # ns
    w = Windows(len(step.ns), choose_checkpoints(step, windows))
    chains = group(step, w, leave_out)
    ideal = sum(step.ns)
    compute = [sum(step.ns[a:b]) for a, b in zip(w.at, w.at[1:])]
    compute.append(ideal - sum(compute))

    # Units that keep the numbers near 1: amounts in hundredths of the budget, times in what the faster way needs for one.
    unit = max(1.0, budget_blocks / 100)
    unit_ns = unit * min(per_block)
    p = Program()
    stalls = p.add(w.count, cost=1.0)
    coming, going = [[] for _ in range(w.count)], [[] for _ in range(w.count)]  # by window: columns of copies
    away = [[] for _ in range(w.count)]  # by checkpoint: columns of what has left
    held = [0.0] * w.count
    for (written, _, spans), blocks in chains.items():
        size = blocks / unit
        for first, count, *_ in spans:
            for c in range(first, first + count):
                held[c % w.count] += size
        if written is None:
            # What is clean leaves at once, and all that is to be known is when it comes back.
            (first, count, *_), = spans
            left = p.add(count, upper=size)
            back = p.add(count)
            for i in range(count):
                away[(first + i) % w.count].append(left[i])
                coming[(first + i) % w.count].append(back[i])
                p.equals([(left[i], 1), (back[i], -1)] + ([(left[i + 1], -1)] if i + 1 < count else []), 0)
            continue
        # Copied out by each checkpoint since the write, and in each window before it.
        end = max(first + count for first, count, *_ in spans)
        copied = p.add(end - written - 1, upper=size)
        out = p.add(end - written - 1)
        for i in range(len(out)):
            going[(written + i) % w.count].append(out[i])
            p.equals([(copied[i], 1), (out[i], -1)] + ([(copied[i - 1], -1)] if i else []), 0)
        for first, count, returns, _ in spans:
            if not returns:
                for i in range(count):
                    away[(first + i) % w.count].append(copied[first + i - written - 1])
                continue
            left = p.add(count, upper=size)
            back = p.add(count)
            for i in range(count):
                away[(first + i) % w.count].append(left[i])
                coming[(first + i) % w.count].append(back[i])
                p.at_most([(left[i], 1), (copied[first + i - written - 1], -1)], 0)
                p.at_most([(left[i], 1), (back[i], -1)] + ([(left[i + 1], -1)] if i + 1 < count else []), 0)
    # Copies cost next to nothing, so that of all schedules with these stalls one is found that copies little.
    price = 1e-5
    in_total, out_total = (p.add(w.count, cost=price * ns * unit / unit_ns) for ns in per_block)
    for i in range(w.count):
        for total, columns, cost in ((in_total[i], coming[i], per_block[0]), (out_total[i], going[i], per_block[1])):
            p.equals([(total, -1)] + [(c, 1) for c in columns], 0)
            p.at_most([(total, cost * unit / unit_ns), (stalls[i], -1)], compute[i] / unit_ns)
        for ns_in, ns_out in shared:
            p.at_most([(in_total[i], ns_in * unit / unit_ns), (out_total[i], ns_out * unit / unit_ns), (stalls[i], -1)], compute[i] / unit_ns)
        excess = step.need[w.at[i]] / unit + held[i] - budget_blocks / unit
        if excess > 0:
            p.at_most([(c, -1) for c in away[i]], -excess)
    result = p.solve(method)
    if result.status != 0:
        raise RuntimeError(f"the solver found no optimum: {result.message}")
    # The price of copies is taken off again: in each direction they take a step's time at most. So is what the solver,
    # exact to 1e-7, may be off by.
    bound = (ideal + result.fun * unit_ns) / (1 + 2 * price)
    bound = max(ideal, math.floor(bound * (1 - 1e-6)))
    moved = [sum(result.x[c] for c in total) * unit * step.block_bytes for total in (in_total, out_total)]
    return {
        "workload": step.name,
        "budget_gib": budget_blocks * step.block_bytes / GIB,
        "h2d_gbps": h2d,
        "d2h_gbps": d2h,
        "both_gbps": list(both) if both else None,
        "copy_latency_ns": latency_ns,
        "steps": step.steps,
        "ideal_ns": ideal // step.steps,
        "bound_ns": bound // step.steps,
        "percent_of_ideal": round(100 * ideal / bound, 2) if bound else 100.0,
        "windows": w.count,
        "in_bytes": int(moved[0] / step.steps),
        "out_bytes": int(moved[1] / step.steps),
        "columns": p.columns,
    }


def main():
    parser = argparse.ArgumentParser(description="The step time that no schedule can beat, phase by phase.")
    parser.add_argument("step", help="what deepum-step wrote")
    parser.add_argument("budget_gib", type=float, nargs="?")
    parser.add_argument("h2d_gbps", type=float, nargs="?", default=50.8)
    parser.add_argument("d2h_gbps", type=float, nargs="?", default=50.8)
    parser.add_argument("--machine", help="instead of budget and rates: the file of a machine, as schedules of version 2 are made for")
    parser.add_argument("--both", type=float, nargs=2, metavar=("IN", "OUT"), help="GB/s of each direction while the other works too")
    parser.add_argument("--windows", type=int, default=128)
    parser.add_argument("--copy-latency-ns", type=float, default=0, help="of each copy; 0 unless copies are known to be short")
    parser.add_argument("--blocks-per-copy", type=int, default=64, help="the most that a copy moves, where a copy has a latency")
    parser.add_argument("--leave-out", type=float, default=0.0, help="share of the blocks that is left out of what is not used, 0 to 1")
    parser.add_argument("--method", default="highs-ipm", choices=("highs-ipm", "highs-ds"), help="of the solver")
    a = parser.parse_args()
    if (a.machine is None) == (a.budget_gib is None):
        raise SystemExit("lp_bound.py: give either a budget or a --machine")
    if a.machine is None and not (a.budget_gib > 0 and a.h2d_gbps > 0 and a.d2h_gbps > 0 and a.windows > 0 and a.blocks_per_copy > 0 and a.copy_latency_ns >= 0):
        raise SystemExit("lp_bound.py: budget, rates, windows and blocks of a copy are more than 0")
    if a.both and not (0 < a.both[0] <= a.h2d_gbps and 0 < a.both[1] <= a.d2h_gbps):
        raise SystemExit("lp_bound.py: the rates of --both are more than 0, and none is more than that of its direction alone")
    try:
        with open(a.step, encoding="utf-8") as file:
            step = Step(json.load(file))
        if a.machine is not None:
            import lp_places

            print(json.dumps(lp_places.lp_places(step, lp_places.read_machine(a.machine), a.windows, leave_out=a.leave_out, method=a.method)))
            return
        budget = int(a.budget_gib * GIB / step.block_bytes)
        result = lp_bound(step, budget, a.h2d_gbps, a.d2h_gbps, a.windows, a.copy_latency_ns, a.blocks_per_copy, a.leave_out, a.method, a.both)
    except (OSError, ValueError, RuntimeError) as error:
        raise SystemExit(f"lp_bound.py: {error}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
