#!/usr/bin/env python3
"""Checks of the documentation: every block in it, its links, and the messages that the guide explains.

    check.py links SOURCE       relative links and anchors lead somewhere; files and commits that are named exist
    check.py blocks SOURCE      every block is of a kind that is checked; shell commands, JSON, INI, diffs, output,
                                templates
    check.py messages SOURCE    every message and metric of the library is in the guide, and every one there in the
                                library
    check.py figures SOURCE     tables that are made from results are those of the results, and figures of documents that
                                repeat measurements stand in such a table or in a document of measurements
    check.py cpp SOURCE WORK [--without=HEADER] -- COMPILER FLAGS...
    check.py cuda SOURCE WORK [--without=HEADER] -- NVCC FLAGS...
    check.py c SOURCE WORK -- COMPILER FLAGS...
                                C++, CUDA and C are compiled: all blocks of a language as one unit, but for those that
                                include a header of this library whose own library is missing here
    check.py cmake SOURCE WORK BUILD CMAKE [cuda]
                                projects of a few lines are configured, with the library of the build tree BUILD

How a block is compiled: as it is, if it has only #include lines or a function main, each in a namespace of its own. Any
other one needs a comment on the line before it, <!-- compiled in NAME -->, and becomes part of the function in
tests/docs/preambles/NAME that has the line "// the block". NAME ends in .cpp, in .cu for what CUDA's compiler has to
see, or in .c. Without a comment a block is for nvcc if it includes a header that needs it.

A block without a language, or with the language text, is the output of a program: its words have to be in the sources.
"""

import configparser
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import documents

PREAMBLES = pathlib.Path(__file__).resolve().parent / "preambles"
CUDA_HEADER = re.compile(r"#include <(deepum/cuda|cub/|thrust/|deepum/interop/(cccl|cub|cublas|cudnn|nvtx|thrust))")
INCLUDE = re.compile(r"^\s*#include\s")
THE_BLOCK = re.compile(r"^ *// the block\n", re.MULTILINE)


# --- links -----------------------------------------------------------------------------------------------------------

NAMED_FILE = re.compile(r"^(bench|cmake|docs|examples|include|kernel-helper|packaging|tests|deepum)/[\w./*-]+$")


def check_commits(source, d):
    """Commits that are named exist, where there is a history to look in."""
    git = ["git", "-C", source]
    shallow = subprocess.run(
        [*git, "rev-parse", "--is-shallow-repository"], text=True, capture_output=True, check=False
    )
    if shallow.stdout.strip() != "false":
        return
    for first, text in documents.paragraphs(d):
        for m in re.finditer(r"\bcommits?\s+`([0-9a-f]{7,40})`", text):
            found = subprocess.run([*git, "cat-file", "-e", m[1] + "^{commit}"], capture_output=True, check=False)
            if found.returncode:
                yield f"{d.path}:{first + text.count(chr(10), 0, m.start())}: there is no commit {m[1]}"


def check_links(source, docs):
    root = pathlib.Path(source)
    anchors = {d.path: d.anchors for d in docs}
    for d in docs:
        folder = (root / d.path).parent
        yield from check_commits(str(source), d)
        for line, target in documents.links(d):
            if re.match(r"^(https?|mailto):", target):
                if not re.match(
                    r"^(https://[\w.-]+\.\w+(/\S*)?|http://(localhost|127\.0\.0\.1)\S*|mailto:\S+)$", target
                ):
                    yield f"{d.path}:{line}: '{target}' is no address to link to (https)"
                continue
            name, _, anchor = target.partition("#")
            file = (folder / name if name else root / d.path).resolve()
            if name and not file.exists() or not file.is_relative_to(root.resolve()):  # nobody else has it
                yield f"{d.path}:{line}: there is no '{target}'"
                continue
            if anchor:
                path = str(file.relative_to(root.resolve()))
                if path not in anchors or anchor not in anchors[path]:
                    yield f"{d.path}:{line}: '{path}' has no heading '#{anchor}'"
        for line, text in documents.spans(d):
            if not NAMED_FILE.match(text):
                continue
            # Headers as they are included, and files as seen from the root or from the document.
            if not any(
                list(r.glob(text.rstrip("/"))) for r in (root, root / "include", folder, root / "include/deepum")
            ):
                yield f"{d.path}:{line}: there is no file '{text}'"


# --- blocks that no compiler reads -----------------------------------------------------------------------------------

COMPILED = {"cpp": ".cpp", "cuda": ".cu", "c": ".c", "cmake": ""}

# What shell blocks may call beside the programs of this repository.
COMMANDS = set(
    "apt-get bash cc cd cmake conan cp ctest curl doxygen env export g++ git make mkdir nsys nvcc pip pkg-config"
    " python3 rm sudo tar vcpkg".split()
)


# Folders with targets; build/ may lie beside them.
PARTS = ("bench", "examples", "kernel-helper", "tests")


class Programs:
    """The programs of the repository, and the flags that they know."""

    def __init__(self, source):
        self.root = pathlib.Path(source)
        self.flags = {}
        for list_file in [f for part in ("bench", "examples", "kernel-helper") for f in (self.root / part).rglob("CMakeLists.txt")]:
            folder = list_file.parent
            text = list_file.read_text(encoding="utf-8")
            for name, sources in re.findall(r"(?:deepum_add_program|add_executable)\(([\w-]+) ([^)]*)\)", text):
                self.add(name, [folder / s for s in sources.split() if s.endswith(".cpp")])
                renamed = re.search(rf"set_target_properties\(\s*{name} PROPERTIES [^)]*OUTPUT_NAME ([\w-]+)", text)
                if renamed:
                    self.add(renamed[1], [folder / s for s in sources.split() if s.endswith(".cpp")])
        for main in self.root.glob("examples/*.cpp"):
            self.add(main.stem, [main])
        for script in list(self.root.glob("bench/**/*.py")):
            known = set(re.findall(r"add_argument\(\s*\"(--[\w-]+)\"", script.read_text(encoding="utf-8")))
            self.flags[str(script.relative_to(self.root))] = known
        run = (self.root / "run").read_text(encoding="utf-8")
        self.commands = set(re.findall(r"^  (\w+)(?: [\w|]+)*\) ", run[run.rindex('case "$command"') :], re.MULTILINE))
        self.benchmarks = set(re.findall(r"^ +([\w-]+)\)", re.search(r"^bench\(\) \{(.*?)^\}", run, re.M | re.S)[1], re.M))
        self.run_words = set(re.findall(r"(?<![\w-])--?\w[\w-]*|\b\w+\b", run))
        self.presets = set()
        presets = json.loads((self.root / "CMakePresets.json").read_text(encoding="utf-8"))
        for group in ("configurePresets", "buildPresets"):
            self.presets |= {p["name"] for p in presets.get(group, []) if not p.get("hidden")}
        self.cmake = "\n".join(
            f.read_text(encoding="utf-8") for f in [self.root / "CMakeLists.txt", *self.root.glob("cmake/*.cmake")]
        )
        everywhere = "\n".join(
            f.read_text(encoding="utf-8") for part in PARTS for f in (self.root / part).rglob("CMakeLists.txt")
        )
        self.targets = set(self.flags) | set(
            re.findall(r"(?:add_executable|add_library|add_custom_target|deepum_add_program)\(([\w-]+)", everywhere)
        )
        self.cmake_options = set(re.findall(r"option\((DEEPUM_\w+)|set\((DEEPUM_\w+)", self.cmake))
        self.cmake_options = {a or b for a, b in self.cmake_options}

    def add(self, name, sources):
        """A program has the flags of its sources, and of each *_flags.hpp that they include. Dashes may stand for
        underscores in their names (program/command_line.hpp)."""
        known = {"--help", "--helpfull", "--helpon", "--flagfile"}
        sources = list(sources)
        for s in sources:
            text = s.read_text(encoding="utf-8")
            for kind, flag in re.findall(r"ABSL_FLAG\(\s*([^,]+),\s*(\w+)", text):
                names = {flag} | ({f"no{flag}"} if kind == "bool" else set())
                known |= {f"--{n}" for n in names} | {f"--{n.replace('_', '-')}" for n in names}
            shared = [self.root / "bench" / f"{h}.cpp" for h in re.findall(r'#include "(gpu/\w+/\w+_flags)\.hpp"', text)]
            sources += [f for f in shared if f not in sources]
        self.flags[name] = known

    def complaints(self, words):
        """What is wrong with one simple command, as a list of words."""
        while words and re.match(r"^\w+=", words[0]):
            words = words[1:]
        if words and words[0] == "sudo":
            words = words[1:]
        if not words:
            return
        name, rest = words[0], words[1:]
        if name == "python3" and rest and rest[0].endswith(".py"):
            name, rest = rest[0], rest[1:]
        if name == "./run":
            if rest and not rest[0].isupper() and rest[0] not in self.commands:
                yield f"./run has no command '{rest[0]}'"
            elif rest:
                for word in rest[1:]:
                    if re.match(r"^--\w", word) and word.split("=")[0] not in self.run_words:
                        yield f"./run {rest[0]} knows no '{word}'"
                if rest[0] == "bench" and len(rest) > 1 and rest[1] not in self.benchmarks:
                    yield f"./run bench knows no '{rest[1]}'"
            return
        program = name.removeprefix("build/bin/")
        if program in self.flags:
            for word in rest:
                flag = word.split("=")[0]
                if re.match(r"^--\w", word) and flag not in self.flags[program]:
                    yield f"{program} has no flag '{flag}'"
            return
        if name.startswith("build/") or "/" in name or name not in COMMANDS:
            yield (
                f"'{name}' is no program of this repository and none that is expected (COMMANDS in tests/docs/check.py)"
            )
            return
        for i, word in enumerate(rest):
            option = re.match(r"^-D(DEEPUM_\w+)=", word)
            if option and option[1] not in self.cmake_options:
                yield f"the build has no option {option[1]}"
            if word == "--preset" and i + 1 < len(rest) and rest[i + 1] not in self.presets:
                yield f"there is no preset '{rest[i + 1]}'"
            if word == "--target":
                for target in rest[i + 1 :]:
                    if target.startswith("-"):
                        break
                    if target not in self.targets:
                        yield f"there is no target '{target}'"


def simple_commands(code):
    """The simple commands of a shell script, as lists of words. Comments and what is in $(...) apart."""
    text = code.replace("\\\n", " ")
    for line in text.split("\n"):
        inner = re.findall(r"\$\(([^()]*)\)", line)
        lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", "X", line), posix=True, punctuation_chars=";&|<>")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words, redirected = [], False
        for word in lexer:
            if re.fullmatch(r"[;&|]+", word):
                yield words
                words = []
            elif re.fullmatch(r"[<>]+", word):
                redirected = True
            elif redirected:
                redirected = False
            else:
                words.append(word)
        yield words
        for command in inner:
            yield from simple_commands(command)


def check_shell(block, programs):
    parsed = subprocess.run(["bash", "-n"], input=block.code, text=True, capture_output=True, check=False)
    if parsed.returncode:
        yield f"{block.where}: {parsed.stderr.strip()}"
        return
    for words in simple_commands(block.code):
        for complaint in programs.complaints(words):
            if words[0] in ("X", "pidof") or words[0].startswith("$"):
                continue
            yield f"{block.where}: {complaint}"


def check_output(block, source_words):
    for word in sorted(set(re.findall(r"[A-Za-z_]{3,}", block.code))):
        if word not in source_words:
            yield f"{block.where}: output with '{word}', which no program prints"


def check_diff(block, source):
    """What goes stands in one example as it was, what comes in another one as it is."""
    files = [f for f in (pathlib.Path(source) / "examples").rglob("*") if f.suffix in (".cpp", ".cu", ".hpp")]
    texts = [set(f.read_text(encoding="utf-8").split("\n")) for f in files]
    for sign, of in (("-", "what goes"), ("+", "what comes")):
        lines = [line[1:] for line in block.code.split("\n") if line.startswith(sign)]
        if lines and not any(all(line in text for line in lines) for text in texts):
            best = max(texts, key=lambda text: sum(line in text for line in lines))
            missing = next(line for line in lines if line not in best)
            yield f"{block.where}: no example has {of}: '{missing.strip()}'"


def check_template(block, source):
    """A template of a document: each of its headings is used by a document beside it."""
    folder = (pathlib.Path(source) / block.path).parent
    others = "\n".join(
        p.read_text(encoding="utf-8") for p in folder.glob("*.md") if p.name != pathlib.Path(block.path).name
    )
    headings = [h for h in re.findall(r"^##+ .*$", block.code, re.MULTILINE)]
    if not headings:
        yield f"{block.where}: Markdown without headings, of which nothing can be checked"
    for h in headings:
        if not re.search(rf"^{re.escape(h)}", others, re.MULTILINE):
            yield f"{block.where}: no document has the heading '{h}'"


def words_of_sources(source):
    words = set()
    for folder in ("examples", "bench", "include", "kernel-helper"):
        for file in (pathlib.Path(source) / folder).rglob("*"):
            if file.suffix in (".cpp", ".hpp", ".c", ".h", ".cu", ".py"):
                words.update(re.findall(r"[A-Za-z_]{3,}", file.read_text(encoding="utf-8")))
    return words


def check_blocks(source, docs):
    programs = Programs(source)
    source_words = words_of_sources(source)
    for d in docs:
        yield from d.complaints
        for b in d.blocks:
            if b.marker and b.language not in COMPILED:
                yield f"{b.where}: '{b.marker}' is named for a block that is not compiled"
            if b.language in ("sh", "bash"):
                yield from check_shell(b, programs)
            elif b.language == "json":
                try:
                    json.loads(b.code)
                except ValueError as e:
                    yield f"{b.where}: {e}"
            elif b.language == "ini":
                try:
                    configparser.ConfigParser(allow_no_value=True, delimiters=("=",)).read_string(b.code)
                except configparser.Error as e:
                    yield f"{b.where}: {e}"
            elif b.language == "py":
                try:
                    compile(b.code, b.where, "exec")
                except SyntaxError as e:
                    yield f"{b.where}: {e.msg} in line {e.lineno} of the block"
            elif b.language == "diff":
                yield from check_diff(b, source)
            elif b.language == "markdown":
                yield from check_template(b, source)
            elif b.language in ("", "text"):
                yield from check_output(b, source_words)
            elif b.language in ("cpp", "cuda", "c"):
                yield from check_marker(b)
            elif b.language != "cmake":
                yield f"{b.where}: nothing checks the language '{b.language}'; see tests/docs/check.py"
        # Programs that prose names with flags.
        for line, text in documents.spans(d):
            if text.startswith("./run ") or re.match(r"^(build/bin/)?[\w-]+ --\w", text):
                words = text.split()
                if words[0].removeprefix("build/bin/") in programs.flags or words[0] == "./run":
                    for complaint in programs.complaints(words):
                        yield f"{d.path}:{line}: {complaint}"


def only_includes(code):
    return all(INCLUDE.match(line) or not line.strip() or line.startswith("//") for line in code.split("\n"))


def is_program(code):
    return re.search(r"^int main\(", code, re.MULTILINE) is not None


def check_marker(b):
    if b.marker:
        file = PREAMBLES / b.marker
        if not file.is_file() or not THE_BLOCK.search(file.read_text(encoding="utf-8")):
            yield f"{b.where}: there is no tests/docs/preambles/{b.marker} with the line '// the block'"
    elif not only_includes(b.code) and not is_program(b.code):
        yield f"{b.where}: neither a program nor includes alone: name what it is compiled in, see tests/docs/check.py"


# --- blocks that a compiler reads ------------------------------------------------------------------------------------


def lines_from(path, line, code):
    return f'#line {line} "{path}"\n{code}'


def unit_of(b):
    """The kind of unit that the block is compiled in: .cpp, .cu or .c."""
    if b.marker:
        return pathlib.Path(b.marker).suffix
    if b.language == "cpp" and CUDA_HEADER.search(b.code):
        return ".cu"
    return COMPILED[b.language]


def split_includes(path, first, code):
    """The #include lines, each with where it stands, and the rest with blank lines in their place."""
    includes, rest = [], []
    for number, line in enumerate(code.split("\n"), first):
        if INCLUDE.match(line):
            includes.append((line.strip(), path, number))
            line = ""
        rest.append(line)
    return includes, "\n".join(rest)


def unit(blocks, language):
    """One translation unit of all blocks. Programs come first, each behind its own includes, so that the first one has
    no others."""
    whole = [b for b in blocks if not b.marker]
    parts = [b for b in blocks if b.marker]
    whole.sort(key=lambda b: not is_program(b.code))
    text, included = "", set()

    def put_includes(includes):
        nonlocal text
        for line, path, number in includes:
            if line not in included:
                included.add(line)
                text += lines_from(path, number, line + "\n")

    def put(n, code, path, line):
        nonlocal text
        if language == ".c":
            text += lines_from(path, line, code + "\n")
        else:
            text += f"namespace block_{n} {{\n" + lines_from(path, line, code + "\n") + "}\n"

    for n, b in enumerate(whole):
        includes, rest = split_includes(b.path, b.line, b.code)
        put_includes(includes)
        if rest.strip():
            put(n, rest, b.path, b.line)
    made = []
    for n, b in enumerate(parts, len(whole)):
        preamble = PREAMBLES / b.marker
        around = preamble.read_text(encoding="utf-8")
        own, around = split_includes(f"tests/docs/preambles/{b.marker}", 1, around)
        of_block, code = split_includes(b.path, b.line, b.code)
        put_includes(of_block)
        put_includes(own)
        before, after = THE_BLOCK.split(around)
        before = before.replace("in_function", f"block_{n}")  # C has no namespaces
        line = before.count("\n") + 2
        made.append(
            (
                n,
                before + lines_from(b.path, b.line, code + "\n") + lines_from(preamble.name, line, after),
                preamble.name,
            )
        )
    for n, code, name in made:
        put(n, code, name, 1)
    return text


def compile_blocks(docs, language, work, command, without=()):
    blocks = [b for d in docs for b in d.blocks if b.language in ("cpp", "cuda", "c") and unit_of(b) == language]
    for b in [b for b in blocks if any(f"<{header}>" in b.code for header in without)]:
        print(f"{b.where}: left out, what it includes is not installed here")
        blocks.remove(b)
    if not blocks:
        return
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    file = work / f"blocks{language}"
    file.write_text(unit(blocks, language), encoding="utf-8")
    made = subprocess.run([*command, str(file)], text=True, capture_output=True, check=False)
    print(f"{len(blocks)} blocks compiled")
    if made.returncode:
        yield made.stdout + made.stderr


# --- CMake -----------------------------------------------------------------------------------------------------------

PROJECT = """cmake_minimum_required(VERSION 3.23)
project(of_a_document LANGUAGES C CXX)
foreach(name IN ITEMS my_program my_trainer app)
  add_executable(${name} main.cpp)
endforeach()
"""


def configure_blocks(docs, source, work, build, cmake, with_cuda):
    for n, b in enumerate(b for d in docs for b in d.blocks if b.language == "cmake"):
        needs_cuda = re.search(r"COMPONENTS (compiled_)?cuda|deepum::(compiled_)?cuda\)", re.sub(r"OPTIONAL_COMPONENTS cuda|#.*", "", b.code))
        if needs_cuda and not with_cuda:
            print(f"{b.where}: left out, there is no CUDA here")
            continue
        folder = pathlib.Path(work) / f"cmake{n}"
        (folder / "third_party").mkdir(parents=True, exist_ok=True)
        for name in ("main.cpp", "train.cu"):
            (folder / name).write_text("int main() {}\n", encoding="utf-8")
        (folder / "CMakeLists.txt").write_text(PROJECT + b.code, encoding="utf-8")
        tree = folder / "third_party/deepum"
        if not tree.is_symlink():
            tree.symlink_to(pathlib.Path(source).resolve())
        command = [
            cmake,
            "-S",
            folder,
            "-B",
            folder / "build",
            f"-Ddeepum_DIR={build}",
            "-DDEEPUM_CUDA=AUTO",
            f"-DFETCHCONTENT_SOURCE_DIR_DEEPUM={source}",
            "-Wno-dev",
        ]
        if shutil.which("ninja"):
            command += ["-G", "Ninja"]  # make, which CMake takes by itself, need not be there
        made = subprocess.run(command, text=True, capture_output=True, check=False)
        if made.returncode:
            yield f"{b.where}:\n{made.stdout}{made.stderr}"


# --- messages --------------------------------------------------------------------------------------------------------

GUIDE = "docs/guide.md"
CALLS = re.compile(
    r"(?<![\w.:])(throw"
    r" error|error|expects|log_?|options\.log|say|log_once|note_failure|failed|refuse|in\.refuse|fail|ignored)\s*\("
    r"|std::string (?:message|why)\s*=|description\s*=|return (?=\"launch ')"
)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def call_text(text, begin):
    """From the bracket at `begin` to the one that closes it, strings respected; to a semicolon where there is none."""
    depth, i = 0, begin
    while i < len(text):
        literal = LITERAL.match(text, i)
        if literal:
            i = literal.end()
            continue
        if text[i] in "({":
            depth += 1
        elif text[i] in ")}":
            depth -= 1
            if depth == 0 and text[begin] == "(":
                return text[begin : i + 1]
        elif text[i] == ";" and depth <= 0:
            return text[begin:i]
        i += 1
    return text[begin:]


def messages(source):
    """(file, line, fragments) of all that the headers may throw, log or stop with."""
    root = pathlib.Path(source)
    for file in sorted((root / "include/deepum").rglob("*.hpp")):
        text = file.read_text(encoding="utf-8")
        for m in CALLS.finditer(text):
            call = call_text(text, m.end() - 1 if m[0].endswith("(") else m.end())
            joined = re.sub(r'"\s*\n?\s*"', "", call)
            fragments = [f for f in LITERAL.findall(joined) if re.search(r"[a-z]{2,} [a-z]|[a-z]{4,}", f)]
            fragments = [f for f in fragments if " " in f.strip() and not f.startswith("%")]
            if fragments:
                yield str(file.relative_to(root)), text.count("\n", 0, m.start()) + 1, fragments


def explained(document):
    """(line, fragments) of the messages in the tables and lists of the guide's last part."""
    begin = next((n for n, line in document.prose if line.startswith("## ") and "message" in line.lower()), None)
    if begin is None:
        return
    for line, text in documents.spans(document):
        if line > begin and (" " in text):
            yield line, [f.strip(" ") for f in text.split("…") if len(f.strip()) > 3]


def check_metrics(source, guide):
    """Every metric of the OpenMetrics text is explained, and no other."""
    text = (pathlib.Path(source) / "include/deepum/metrics.hpp").read_text(encoding="utf-8")
    known = set(re.findall(r'^ +\{"(\w+)", ', text, re.MULTILINE))
    known |= set(re.findall(r'(?:family|by_reason|by_link)\("(\w+)", "', text))
    named = {}
    for line, span in documents.spans(guide):
        if re.fullmatch(r"deepum_[a-z_]+", span):
            named.setdefault(span.removeprefix("deepum_"), line)
    for name in sorted(known - set(named)):
        yield f"{GUIDE} does not explain the metric 'deepum_{name}'"
    for name in sorted(set(named) - known):
        yield f"{GUIDE}:{named[name]}: there is no metric 'deepum_{name}'"


def check_messages(source, docs):
    guide = next((d for d in docs if d.path == GUIDE), None)
    if guide is None:
        yield f"there is no {GUIDE}"
        return
    if (pathlib.Path(source) / "include/deepum/metrics.hpp").exists():
        yield from check_metrics(source, guide)
    known = list(messages(source))
    literals = set()
    for file in (pathlib.Path(source) / "include/deepum").rglob("*.hpp"):
        literals.update(LITERAL.findall(re.sub(r'"\s*\n\s*"', "", file.read_text(encoding="utf-8"))))
    for file in (pathlib.Path(source) / "kernel-helper").glob("*.c"):
        literals.update(LITERAL.findall(re.sub(r'"\s*\n\s*"', "", file.read_text(encoding="utf-8"))))
    # The reader's texts are formats: what is put into them is a gap, as in the guide.
    everything = "\n".join(literals)
    said = list(explained(guide))
    if not said:
        yield f"{GUIDE} explains no messages"
    for line, fragments in said:
        for f in fragments:
            if f not in everything:
                yield f"{GUIDE}:{line}: no message has '{f}'"
    quoted = "\n".join(f for _, fragments in said for f in fragments)
    for file, line, fragments in known:
        if not any(f.strip() in quoted for f in fragments):
            yield f"{file}:{line}: {GUIDE} does not explain '{max(fragments, key=len)}'"


# --- figures ---------------------------------------------------------------------------------------------------------

MEASURED = re.compile(
    r"^(README\.md|kernel-helper/README\.md|docs/(adr/.*|bounds|deepum_paper|lab|replay|simulator)\.md)$"
)
REPEATING = ("docs/guide.md", "docs/comparison.md", "docs/dead_ends.md", "docs/cuda.md", "docs/paged_memory.md")
FIGURE = re.compile(r"(?<![\w.,/-])\d+\.\d+(?!\d|\.\d|\w)")
VERSION = re.compile(r"(CUDA|TensorFlow|CMake|driver|g\+\+|version) \d+(\.\d+)*")
MADE_TABLE = re.compile(r"<!-- (results|study|paper):(\w+) -->\n(.*?)<!-- /\1 -->", re.DOTALL)


def makers(source):
    """By kind of mark: what makes the table of a name from the raw results."""
    bench = pathlib.Path(source) / "bench"
    sys.path[:0] = [str(bench / "results"), str(bench / "replay")]
    import deepum_paper_tables
    import study_tables
    import tables

    def raw(page):
        return json.loads((pathlib.Path(source) / f"docs/{page}/results.json").read_text(encoding="utf-8"))

    study = raw("replay")
    paper = raw("deepum_paper")
    return {
        "results": lambda name: tables.TABLES[name](),
        "study": lambda name: study_tables.table(study, name),
        "paper": lambda name: deepum_paper_tables.table(paper, name),
    }


def made_tables(d):
    """(line number, kind, name, text) of the tables that are made from results."""
    text = "\n".join(line for _, line in d.prose)
    for m in MADE_TABLE.finditer(text):
        yield d.prose[text.count("\n", 0, m.start())][0], m[1], m[2], m[3]


def check_tables(source, docs):
    make = makers(source)
    for d in docs:
        for line, kind, name, text in made_tables(d):
            try:
                made = make[kind](name)
            except KeyError:
                yield f"{d.path}:{line}: there is no table '{kind}:{name}'"
                continue
            if made is not None and made + "\n" != text:
                yield f"{d.path}:{line}: the table '{kind}:{name}' is not that of the raw results; they say\n{made}"


def check_figures(source, docs):
    """Decimals of documents that repeat figures: each stands in a table that is made from results or in a document of
    measurements, perhaps with more digits, or has its source beside it, an address in the same paragraph or row."""
    yield from check_tables(source, docs)
    texts = [
        t for d in docs if MEASURED.match(d.path) for t in [text for _, text in d.prose] + [b.code for b in d.blocks]
    ]
    texts += [text for d in docs for _, _, _, text in made_tables(d)]
    known = {figure for text in texts for figure in FIGURE.findall(text)}

    def stands(figure):
        digits = len(figure.partition(".")[2])
        return any(figure == k or f"{float(k):.{digits}f}" == figure for k in known)

    for d in docs:
        if d.path not in REPEATING:
            continue
        for first, text in documents.paragraphs(d):
            table = text.lstrip().startswith(("|", "<!--"))
            for n, part in enumerate(text.split("\n") if table else [text]):
                if "](https://" in part:
                    continue
                for m in FIGURE.finditer(VERSION.sub(lambda v: " " * len(v[0]), part)):
                    if not stands(m[0]):
                        line = first + n + part.count("\n", 0, m.start())
                        yield (
                            f"{d.path}:{line}: {m[0]} stands in no document of measurements, and no source is beside it"
                        )


# --- main ------------------------------------------------------------------------------------------------------------


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    what, source, *rest = arguments
    docs = documents.read_all(source)
    if what == "links":
        complaints = check_links(source, docs)
    elif what == "blocks":
        complaints = check_blocks(source, docs)
    elif what == "messages":
        complaints = check_messages(source, docs)
    elif what == "figures":
        complaints = check_figures(source, docs)
    elif what in ("cpp", "cuda", "c"):
        command = rest.index("--")
        without = [option.removeprefix("--without=") for option in rest[1:command]]
        complaints = compile_blocks(docs, COMPILED[what], rest[0], rest[command + 1 :], without)
    elif what == "cmake":
        complaints = configure_blocks(docs, source, *rest[:3], rest[3:] == ["cuda"])
    else:
        sys.exit(__doc__)
    found = list(complaints)
    for c in found:
        print(c)
    print(f"{what}: {len(docs)} documents, {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
