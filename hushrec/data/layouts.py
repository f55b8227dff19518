"""Files with several ratings a line, which are not read: their layout, and the command that converts them."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections import Counter

from hushrec.data.domain import Domain
from hushrec.data.sources import files_at
from hushrec.data.textfiles import DELIMITERS, lines_of
from hushrec.errors import InputError

_LOOKED_AT = 500  # lines
_SEPARATORS = r"[,;|\t ]+"
_MOSTLY = 0.8
_ALIKE = 0.7  # part of the lines of a table that have one length, at least


def layout_of(path: str, domain: Domain) -> str:
    """Return a sentence on the layout and the command that converts it; empty for other files. Private."""
    with contextlib.suppress(InputError, OSError), files_at(path)[0].stream() as stream:
        text = next(lines_of(stream), b"").decode(errors="replace").replace('"', "")
        lines = [line.strip() for line in text.split("\n")[:_LOOKED_AT] if line.strip()]
        what, program = (lines and _wide(lines, domain)) or _lists(lines, domain) or ("", "")
        if what:
            command = f"awk {program} {shlex.quote(path)} > rows.csv"
            return f"{path!r} is {what}; make a table of one row per like with\n  {command}"
    return ""


def _wide(lines: list[str], domain: Domain) -> tuple[str, str] | None:
    """Recognise a table with a column for each item, perhaps after one of users."""
    mark = max((*DELIMITERS, " "), key=lines[0].count)
    head, *rows = [[cell.strip() for cell in line.split(mark)] for line in lines]
    items = [place for place, name in enumerate(head) if domain.position(name) >= 0]
    if len(items) < 2 or len(head) - len(items) > 1 or any(len(row) != len(head) for row in rows):
        return None
    if not all(re.fullmatch(r"-?[0-9.]*", row[place]) for row in rows for place in items):
        return None
    user = next((place + 1 for place in range(len(head)) if place not in items), 0)
    who = f"${user}" if user else "NR-1"
    loop = f'for(i=1;i<=NF;i++)if(i!={user}&&$i>0)print {who}","n[i]","$i'
    program = f'{{gsub(/["\\r]/,"")}} NR==1{{split($0,n);print "user,item,rating"}} NR>1{{{loop}}}'
    separator = shlex.quote(mark.replace("\t", r"\t"))
    return "a wide table with a column for each item", f"-F{separator} {shlex.quote(program)}"


def _lists(lines: list[str], domain: Domain) -> tuple[str, str] | None:
    """Recognise a user's id and their items, or a basket, on each line."""
    rows = [[cell for cell in re.split(r"[,;|\s\[\]]+", line) if cell] for line in lines]
    known = [[domain.position(cell) >= 0 for cell in row] for row in rows]
    has_header = len(rows) > 1 and not any(known[0])
    known = known[has_header:]
    later = [cell for row in known for cell in row[1:]]
    most = max(Counter(map(len, known)).values(), default=0)
    if not later or most > _ALIKE * len(known) or sum(later) < _MOSTLY * len(later):
        return None
    first = [row[0] for row in known if row]
    is_basket = sum(first) >= _MOSTLY * len(first)
    who, start = ("NR", 1) if is_basket else ("$1", 2)
    loop = f'for(i={start};i<=NF;i++)if($i!="")print {who}","$i'
    program = f'BEGIN{{print "user,item"}} {{gsub(/["\\r\\[\\]]/,"")}} NR>{int(has_header)}{{{loop}}}'
    return "a file with one list a line", f"-F{shlex.quote(_SEPARATORS)} {shlex.quote(program)}"
