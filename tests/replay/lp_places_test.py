"""Tests of bench/replay/lp_places.py. Exit status 77 where numpy or scipy is missing.

Blocks take 1 MB here, and a link at 1 GB a second a millisecond for one.
"""
import random
import sys
import unittest

import lp_bound_test  # leaves where something is missing
from lp_bound_test import FRESH, MS, READ, UPDATE, step_of

import lp_bound
import lp_places

MB = 1_000_000


def machine(budget, spare=0, links=1, near=10.0, caps=(), memory=True, rate=1.0):
    """Device 0 with so many blocks, a neighbour with `spare`, and one or two links to the host each way."""
    text = {
        "budgets_gib": {"0": budget * MB / lp_bound.GIB + 1e-9},
        "links": {"in": rate, "out": rate},
        "routes": [["host", 0, ["in"]], [0, "host", ["out"]]],
        "caps": list(caps),
    }
    if spare or links > 1:
        text["links"].update({"in1": rate, "out1": rate, "to": near, "from": near})
    if links > 1:
        text["routes"] += [["host", 0, ["in1", "from"]], [0, "host", ["to", "out1"]]]
    if spare:
        text["budgets_gib"]["1"] = spare * MB / lp_bound.GIB + 1e-9
        text["routes"] += [[0, 1, ["to"]], [1, 0, ["from"]]]
        if memory:
            text["routes"] += [["host", 1, ["in1"]], [1, "host", ["out1"]]]
    return lp_places.Machine(text)


def looks_up(step, launch, blocks, share, row=128):
    """The launch only looks rows up in these blocks, and reads and writes such a share of each."""
    for segment, (_, gaps) in step.segments.items():
        for at, _, writes, _ in gaps:
            if at == launch and segment in blocks:
                step.look_ups[launch, segment] = (MB * share, MB * share * writes, row)
    return step


class LpPlaces(unittest.TestCase):
    def bound(self, step, m, windows=1000):
        return lp_places.lp_places(step, m, windows)["bound_ns"] / MS

    def check(self, step, m, ms):
        self.assertAlmostEqual(self.bound(step, m), ms, delta=2e-3 * ms)

    def test_a_device_alone_has_the_bound_that_it_has_without_places(self):
        rng = random.Random(3)
        for _ in range(30):
            launches = [(rng.randint(0, 15) * MS // 10, {b: rng.choice((READ, UPDATE)) for b in rng.sample(range(6), 2)}) for _ in range(8)]
            step, budget = step_of(launches), rng.randint(2, 4)
            self.assertAlmostEqual(self.bound(step, machine(budget)) * MS, lp_bound_test.bound(step, budget)["bound_ns"], delta=MS / 500)

    def test_two_links_are_twice_as_fast_and_a_cap_holds_them_together(self):
        step = step_of([(MS / 100, {b: UPDATE}) for b in range(3)])
        self.check(step, machine(2), 1.5)
        self.check(step, machine(2, links=2), 0.75)
        self.check(step, machine(2, links=2, caps=[[["in", "in1"], 1.0]]), 1.5)
        self.check(step, machine(2, links=2, caps=[[["in", "in1", "out", "out1"], 2.0]]), 1.5)

    def test_rows_are_touched_in_place_where_that_is_cheaper_than_bringing_blocks(self):
        def step(share):
            made = step_of([(MS / 100, {b: UPDATE}) for b in range(3)])
            self.assertEqual(sorted(made.segments), [0, 1, 2])
            for b in range(3):
                looks_up(made, b, {b}, share)
            return made

        def about(share, m, ms):  # a little may be copied beside the launches
            self.assertLessEqual(self.bound(step(share), m), ms * 1.001)
            self.assertGreaterEqual(self.bound(step(share), m), ms * 0.9)

        on = machine(2)
        about(0.1, on, 1.5)  # the machine does not say how fast
        on.row_rates = [(128, 1.0)]
        about(0.1, on, 0.03 + 0.1)  # two blocks stay, and a tenth of a block goes each way for the third
        about(0.25, on, 0.03 + 0.25)
        on.row_rates = [(128, 0.5)]
        about(0.1, on, 0.03 + 0.2)
        on.row_rates = [(256, 1.0)]
        about(0.1, on, 1.5)  # nor of rows that short

    def test_the_slower_link_of_a_way_counts(self):
        step = step_of([(MS / 100, {b: READ}) for b in range(3)])
        self.check(step, machine(2, links=2, near=0.5), 1.0)  # 1.5 blocks at 1 + 0.5 a millisecond

    def test_what_the_neighbour_holds_need_not_come_from_the_host(self):
        step = step_of([(MS / 100, {b: UPDATE}) for b in range(3)])
        self.check(step, machine(2, spare=1), 1.5 / 11)  # one and a half blocks: of eleven, one from the host
        self.check(step, machine(2, spare=1, near=1000.0), 0.03)

    def test_a_neighbour_that_is_full_leaves_the_rest_to_the_host(self):
        step = step_of([(MS / 100, {b: UPDATE}) for b in range(4)])
        self.check(step, machine(2), 8 / 3)
        self.check(step, machine(2, spare=1, near=1000.0, memory=False), 4 / 3)
        self.check(step, machine(2, spare=1, near=1000.0), 2 / 3)  # by its own link to the host as well
        self.check(step, machine(2, spare=2, near=1000.0), 0.04)

    def test_blocks_come_by_way_of_a_neighbour_that_has_a_link_of_its_own(self):
        # Without routes over two links: into the neighbour's memory, and from there.
        step = step_of([(MS / 100, {b: READ}) for b in range(5)])
        alone = self.bound(step, machine(2))
        staged = self.bound(step, machine(2, spare=1))
        self.assertLess(staged, 0.75 * alone)
        self.assertGreater(staged, 0.45 * self.bound(step, machine(3)))

    def test_no_memory_makes_more_than_the_sum_would(self):
        rng = random.Random(4)
        for case in range(20):
            launches = [(rng.randint(0, 10) * MS // 10, {b: rng.choice((READ, UPDATE)) for b in rng.sample(range(7), 2)}) for _ in range(9)]
            deaths = []
            if rng.random() < 0.5:
                at = [k for k, (_, uses) in enumerate(launches) if 0 in uses]
                if at:
                    launches[at[0]][1][0] = FRESH
                    deaths.append((at[-1], 0))
            step = step_of(launches, deaths)
            with self.subTest(case=case):
                spare = self.bound(step, machine(2, spare=2, links=2, near=1e6))
                whole = self.bound(step, machine(4, links=2))
                self.assertGreaterEqual(spare * 1.001, self.bound(step, machine(4, links=2, rate=1.0)) * 0.999)
                self.assertLessEqual(spare, 1.01 * self.bound(step, machine(2, links=2)))
                self.assertAlmostEqual(spare, whole, delta=0.35 * whole)
                self.assertGreaterEqual(self.bound(step, machine(2, spare=2, links=2, near=2.0)) * 1.001, spare)


if __name__ == "__main__":
    sys.exit(unittest.main())
