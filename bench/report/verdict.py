"""A run in two sentences: how fast it is beside others, what limits it, and what to try."""
import statistics

import bound


def least_ns(run):
    """What no schedule of its step can beat; None where nothing says so."""
    if run.least_ns is not None or run.trace is None:
        return run.least_ns
    if run.trace.how.startswith("no step"):
        return None
    budget = run.budget or max((b for _, b in run.trace.memory), default=0)
    found = bound.least_of(run.trace, run.trace.steps[-1], budget)
    return None if found is None else 1000 * found


def limit(inputs, run, time):
    """What limits the run, and what to try: both begin in the middle of a sentence."""
    shares = run.shares()
    if not shares:
        return "what limits it is not known without a trace", "record one with DEEPUM_TRACE=FILE or --trace FILE"

    def share(of):
        return statistics.mean(of(s) / s.time for s in shares)

    waiting, computing = share(lambda s: s.waiting), share(lambda s: s.computing)
    into, out = share(lambda s: s.busy["copy_in"]), share(lambda s: s.busy["copy_out"])
    by_fault = sum(s.reasons["copy_in"]["fault"] for s in shares) / max(1, sum(s.bytes["copy_in"] for s in shares))
    faults = statistics.mean(s.faults for s in shares)
    if waiting < 0.03:
        if computing > 0.9:
            return "the GPU computes nearly all of the time, so memory does not limit it", "leave it as it is, or give it a smaller budget"
        return (f"launches hardly wait for memory, but the GPU has nothing to do for {100 * (1 - computing):.0f} % of the time",
                "launch further ahead, or record launches as a graph")
    if faults and by_fault > 0.2:
        return (f"page faults limit it, {faults:.0f} in a step",
                "use the policy auto" if run.policy in ("um", "off") else "declare what launches touch, and run checked mode first")
    rates = {k: bound.best_rate(c) for k, c in run.trace.copies.items()}
    if out >= 0.8 and out >= into:
        paged = next((r for r in inputs.runs if r.policy == run.policy and r.memory.startswith(("paged", "mapped")) and (r.ns() or run.ns()) < run.ns()), None)
        slow = rates["copy_in"] and rates["copy_out"] and rates["copy_out"] < 0.75 * rates["copy_in"]
        return (f"the link to the host limits it: it is busy for {100 * out:.0f} % of the time",
                f"try paged memory, where this step takes {time(paged.ns())}" if paged else
                "try paged memory, where copies to the host are as fast as those to the device" if slow else
                "say what is of no value any more (overwrites, mark_inactive), or raise the budget")
    if into >= 0.8:
        return f"the link to the device limits it: it is busy for {100 * into:.0f} % of the time", "raise the budget, or say what is overwritten as a whole"
    if run.policy == "auto" and run.trace.period() == 0:
        return (f"launches wait for {100 * waiting:.0f} % of the time, and no step was recognised that recurs",
                "launch the same kernels on the same memory in the same order in each step")
    return (f"launches wait for {100 * waiting:.0f} % of the time while the links are busy for {100 * into:.0f} % (to the device) and {100 * out:.0f} %",
            "raise the budget, or let the host launch further ahead of the device")


def text(inputs, own, time):
    """The two sentences. @param time  Called with nanoseconds, gives text."""
    ns, paging, least = own.ns(), inputs.beside(own, ("um", "off")), least_ns(own)
    step = "The whole run" if own.trace and own.trace.how.startswith("no step") and not own.step_ns else "A step"
    first = f"{step} takes {time(ns)} under {own.policy}" + (f" on {own.memory}" if own.memory.endswith("memory") else "")
    compared = []
    if paging:
        times = paging.ns() / ns
        compared.append(f"{times:.1f} times as fast as demand paging" if times >= 1.05 else
                        f"no faster than demand paging ({time(paging.ns())})")
    if least:
        where = "on these links" if own.least_ns is not None else "at the speed of its own copies"
        compared.append(f"{100 * least / ns:.0f} % of what is possible {where} ({time(least)})")
    first += ": " + ", and ".join(compared) if compared else ""
    if not paging and own.policy not in ("um", "off"):
        first += "; a second run with DEEPUM_POLICY=um shows what demand paging takes"
    what, attempt = limit(inputs, own, time)
    return f"{first}. {what[0].upper()}{what[1:]}; {attempt}."
