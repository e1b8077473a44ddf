#!/usr/bin/env python3
"""first_lines.py FILE COMPILER FLAG...: what the compiler says of each mistake in FILE, in its first error for that line.

A mistake is the line below a comment `// error: WORDS`. {size} and {ul} in the words are how compilers write the type
of a size. Where FILE knows MISTAKES, it has to compile without.
"""
import re
import subprocess
import sys


def wanted(path, flags):
    """The words for each line with a mistake, as far as the preprocessor keeps the line."""
    kept, found = [True], {}
    with open(path) as file:
        lines = file.read().split("\n")
    for number, line in enumerate(lines, 1):
        condition = re.match(r"#if(n?)def (\w+)", line)
        if condition:
            kept.append(("-D" + condition[2] in flags) != bool(condition[1]))
        elif line == "#else":
            kept[-1] = not kept[-1]
        elif line == "#endif":
            kept.pop()
        elif all(kept) and line.strip().startswith("// error: "):
            found[number + 1] = line.strip()[len("// error: "):]
    return found


def first_errors(path, output):
    """The first error for each line of the file, as GCC and nvcc tell which line it belongs to."""
    name, found, context, pending = re.escape(path), {}, None, None
    for line in output.split("\n"):
        if at := re.match(name + r":(\d+):\d+: +required from here", line):
            context = int(at[1])  # GCC: before the error
        elif at := re.search(r'at line (\d+) of "?' + name, line):
            if pending:  # nvcc: behind the error
                found.setdefault(int(at[1]), pending)
        elif re.search(r"\berror: ", line):
            pending = line
            at = re.match(name + r"[:(](\d+)", line)
            if context or at:
                found.setdefault(context or int(at[1]), line)
        elif re.match(name + r": In function", line):
            context = None
    return found


def main():
    path, compiler = sys.argv[1], sys.argv[2:]
    failed = False

    def compile_with(*flags):
        done = subprocess.run([*compiler, *flags, path], capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr

    with open(path) as file:
        with_and_without = "#ifndef MISTAKES" in file.read()
    if with_and_without:
        right, output = compile_with()
        if not right:
            sys.exit(f"FAILED: {path} does not compile without its mistakes\n{output}")
        compiler.append("-DMISTAKES")
    wrong, output = compile_with()
    errors = first_errors(path, output)
    mistakes = wanted(path, compiler)
    if not mistakes:
        sys.exit(f"FAILED: {path} has no mistakes")
    for line, words in mistakes.items():
        pattern = re.escape(words).replace(r"\{size\}", "[a-z_:]+( [a-z]+)*").replace(r"\{ul\}", "(UL)?")
        if not re.search(pattern, errors.get(line, "")):
            failed = True
            print(f"FAILED: {path}:{line}: no `{words}` in\n    {errors.get(line, 'nothing')}")
    for line, error in errors.items():
        if line not in mistakes:
            failed = True
            print(f"FAILED: {path}:{line} is right, but\n    {error}")
    if failed:
        sys.exit(output)


main()
