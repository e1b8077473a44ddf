#!/usr/bin/env python3
"""layout.py circles|knowledge|sizes INCLUDE: the house rules of the headers below INCLUDE/deepum, and of what is beside
INCLUDE.

circles    No header includes itself through others, and no folder another one that includes it. A header and its
           definitions in impl/ are one. Headers beside folders (those of deepum/ and of deepum/cuda/) are built of the
           folders, or the folders of them: each of them counts by itself.
knowledge  Each folder has a README.md whose paragraph **May know** lists, before its first full stop, the folders and
           headers that its own may include. Every folder may know the ground: headers of deepum/ that know no folder.
           Before that paragraph it names each header, or the folder in it that the header lies in.
sizes      No file of C++, C, CUDA or Python in include/, tests/, bench/, examples/, program/ and kernel-helper/ has more
           than 450 lines: then it has more than one idea. LARGER lists the files that need more, each with the reason.
"""

import pathlib
import re
import sys

LONGEST = 450
FOLDERS = ("include", "tests", "bench", "examples", "program", "kernel-helper")
LANGUAGES = {".hpp", ".cpp", ".c", ".h", ".cu", ".cuh", ".py"}
# Of each file: which idea needs the room. One that has become small enough is to be taken out.
LARGER = {
    "examples/serve/load_client.cpp": "an example is one file that can be read from above to below",
    "include/deepum/sim/impl/paged_memory.hpp": "the model of one kind of memory: its copies, mappings and what launches find on the host",
    "kernel-helper/deepum_uvm_events.c": "a kernel module of one file, as the kernel's build takes it",
    "tests/docs/check.py": "one pass over the pages; each check is a short function that uses what the pass has found",
    "tests/engine/home_copy_contents_test.cpp": "one model of memory and the random run on it",
    "tests/gpu/paged_memory_test.cpp": "one program on a GPU, each case with the kernels beside it",
    "tests/gpu_bench/host_kernels.cpp": "a list: the host's twin of each kernel of bench/gpu",
    "tests/gpu_bench/layered_schedules.cpp": "one table of schedules by hand and what each must do",
    "tests/kernel_helper/fake_uvm_tools.hpp": "one fake of the driver's interface, which the C file sees as a whole",
    "tests/kernel_helper/uvm_events_test.cpp": "the tests of one C file, which share its fake driver",
    "tests/planning/step_planner_test.cpp": "the tests of one algorithm on one bench of segments",
    "tests/policy/auto_test.cpp": "the tests of one composition on one bench",
    "tests/replay/machine_test.cpp": "the tests of one kind of file, and whole replays on the machine that it describes",
    "tests/replay/scenario_test.cpp": "one case for each scenario, and the workload that all of them are made from",
    "tests/report/report_test.py": "one report, drawn once, and what each part of it must say",
}


class Headers:
    """The headers of the library, and which includes which. Names are paths below deepum/, definitions under their
    header's name."""

    def __init__(self, include):
        self.root = pathlib.Path(include) / "deepum"
        self.paths = sorted(self.root.rglob("*.hpp"))
        self.includes = {}
        for path in self.paths:
            mine = self.includes.setdefault(self.merged(path.relative_to(self.root).as_posix()), set())
            for name in re.findall(r"^\s*#\s*include\s*<deepum/([^>]+)>", path.read_text(), re.MULTILINE):
                mine.add(self.merged(name))
        for name, mine in self.includes.items():
            mine.discard(name)

    @staticmethod
    def merged(name):
        return re.sub(r"(^|/)impl/", r"\1", name)

    def ground(self):
        """Headers of deepum/ itself that reach no folder."""
        known = {}

        def is_ground(name, on_the_way=()):
            if "/" in name:
                return False
            if name not in known:
                known[name] = all(is_ground(n, (*on_the_way, name)) for n in self.includes.get(name, ()) if n not in on_the_way)
            return known[name]

        return {name for name in self.includes if is_ground(name)}


def folder_of(name):
    return pathlib.PurePosixPath(name).parent.as_posix()


def circle_in(graph):
    """Nodes of a circle in order, or None. `graph` maps a node to those it leads to."""
    state, way = {}, []

    def walk(node):
        state[node] = "open"
        way.append(node)
        for other in sorted(graph.get(node, ())):
            if state.get(other) == "open":
                return way[way.index(other):] + [other]
            if other not in state and (found := walk(other)):
                return found
        way.pop()
        state[node] = "done"
        return None

    for node in sorted(graph):
        if node not in state and (found := walk(node)):
            return found
    return None


def circles(headers):
    if found := circle_in(headers.includes):
        yield "headers include each other: " + " -> ".join(found)
    folders = {folder_of(name) for name in headers.includes}
    beside = {f for f in folders if any(o != f and (f == "." or o.startswith(f + "/")) for o in folders)}

    def node(name):
        return name if folder_of(name) in beside else folder_of(name) + "/"

    graph = {}
    for name, mine in headers.includes.items():
        graph.setdefault(node(name), set()).update(node(n) for n in mine if node(n) != node(name))
    if found := circle_in(graph):
        yield "folders include each other: " + " -> ".join(found)


def knowledge(headers):
    ground = headers.ground()
    tops = sorted({name.split("/")[0] for name in headers.includes if "/" in name})
    for top in tops:
        page = headers.root / top / "README.md"
        if not page.exists():
            yield f"{top}/ has no README.md"
            continue
        said = re.search(r"\*\*May know\*\*:(.*?)(?:\.(?=\s)|\.?\Z)", page.read_text(), re.DOTALL)
        if not said:
            yield f"{page.relative_to(headers.root)} does not say what its headers may know: **May know**: ..."
            continue
        named = set(re.findall(r"`([^`]+)`", page.read_text()[:said.start()]))
        for name in sorted(headers.includes):
            own = pathlib.PurePosixPath(name).relative_to(top) if name.startswith(top + "/") else None
            if own and own.stem not in named and f"{own.parent}/" not in named:
                yield f"{top}/README.md does not name {own}"
        allowed = re.findall(r"`([^`]+)`", said[1])
        for name in allowed:
            if not (headers.root / name).exists():
                yield f"{top}/README.md: there is no {name}"
        for name, mine in sorted(headers.includes.items()):
            if not name.startswith(top + "/"):
                continue
            for other in sorted(mine):
                own = other.startswith(top + "/") or other in ground
                if not own and not any(other == a or (a.endswith("/") and other.startswith(a)) for a in allowed):
                    yield f"{name} includes {other}, which {top}/README.md does not allow"


def sizes(headers):
    source = headers.root.parent.parent
    lengths = {}
    for folder in FOLDERS:
        for path in sorted((source / folder).rglob("*")):
            if path.suffix in LANGUAGES and path.is_file():
                lengths[path.relative_to(source).as_posix()] = path.read_text().count("\n")
    for name, lines in lengths.items():
        if lines > LONGEST and name not in LARGER:
            yield f"{name} has {lines} lines: which ideas are in it?"
    for name in LARGER:
        if name in lengths and lengths[name] <= LONGEST:
            yield f"{name} has {lengths[name]} lines now: take it out of LARGER"


RULES = {"circles": circles, "knowledge": knowledge, "sizes": sizes}


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in RULES:
        sys.exit(__doc__)
    headers = Headers(arguments[1])
    complaints = list(RULES[arguments[0]](headers))
    for complaint in complaints:
        print(complaint)
    print(f"{arguments[0]}: {len(headers.paths)} headers, {len(complaints)} complaints")
    return 1 if complaints or not headers.paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
