"""Tables of documents that are made from results: `<!-- KIND:NAME -->`, the table, `<!-- /KIND -->`."""

import pathlib
import re


def markdown(head, rows):
    lines = ["| " + " | ".join(str(c) for c in head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows])


def renewed(text, kind, make):
    """`text` with each table of the kind replaced by make(name); one for which that is None stays as it is."""

    def table(match):
        made = make(match[1])
        return match[0] if made is None else f"<!-- {kind}:{match[1]} -->\n{made}\n<!-- /{kind} -->"

    return re.sub(rf"<!-- {kind}:(\w+) -->\n.*?<!-- /{kind} -->", table, text, flags=re.DOTALL)


def renew(path, kind, make):
    """Renews the tables of a file in place."""
    file = pathlib.Path(path)
    file.write_text(renewed(file.read_text(encoding="utf-8"), kind, make), encoding="utf-8")
