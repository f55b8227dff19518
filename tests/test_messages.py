"""What messages may name: every value in an error, a warning or a line on the screen was read by a person.

No cell of a file, no count of rows and nothing else that private rows decide may stand in a message. Which
values are safe is nothing that a machine can tell, so they are kept, file by file, in `messages.txt`: a
sentence that shows something new fails here until somebody has asked where that value comes from and has
added it to the list. Constants in capitals and the names of types need no entry.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import hushrec

LIBRARY = Path(hushrec.__file__).parent
LIST = Path(__file__).with_name("messages.txt")
#: Functions whose first argument a person sees.
SAYS = re.compile(r"print|warn|info$|debug$|error$|^say|echo|^write$|Error$|Warning$|Exit$")
NEED_NO_ENTRY = re.compile(r"_?[A-Z][A-Z_]*|type\(\w+\)\.__name__")


def values(node: ast.expr) -> set[str]:
    """The expressions that make up a text, but for its constant parts."""
    if isinstance(node, ast.Constant):
        return set()
    if isinstance(node, ast.JoinedStr):
        return set().union(*(values(part) for part in node.values))
    if isinstance(node, ast.FormattedValue):
        return values(node.value)
    if isinstance(node, ast.BinOp):
        return values(node.left) | values(node.right)
    if isinstance(node, ast.IfExp):
        return values(node.body) | values(node.orelse)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "plural":
        return values(node.args[0])
    said = ast.unparse(node)
    return set() if NEED_NO_ENTRY.fullmatch(said) else {said}


def named(source: str) -> set[str]:
    """Return the values that the messages of a source name."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                found |= values(argument)
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            text = isinstance(node.args[0], (ast.JoinedStr, ast.BinOp, ast.IfExp))
            if SAYS.search(name) and (text or re.search("Error$|Warning$", name)):
                found |= values(node.args[0])
    return found


def listed() -> dict[str, set[str]]:
    """File to the values that its messages may name."""
    allowed: dict[str, set[str]] = defaultdict(set)
    file = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            file = line
        elif line.strip() and not line.startswith("#"):
            allowed[file].add(line.strip())
    return allowed


FILES = sorted(str(path.relative_to(LIBRARY)) for path in LIBRARY.rglob("*.py"))


@pytest.mark.parametrize("file", FILES)
def test_a_message_names_only_what_was_read_by_a_person(file: str) -> None:
    found = named((LIBRARY / file).read_text(encoding="utf-8"))
    new = sorted(found - listed()[file])
    assert not new, f"Could rows decide {new}? If not, add them to tests/messages.txt under {file}."


def test_the_list_names_nothing_that_is_gone() -> None:
    left = {file: allowed - named((LIBRARY / file).read_text()) for file, allowed in listed().items()}
    assert not {file: gone for file, gone in left.items() if gone}


@pytest.mark.parametrize(
    "planted",
    [
        'raise InputError(f"No such user: {user!r}")',
        'raise InputError("No such user" f" {user!r}", parameter="user")',
        'raise InputError("No such user: " + str(user))',
        'warnings.warn("%d rows left out" % rows)',
        'raise SystemExit("none" if ok else text)',
        'progress.write(f"{len(ratings)} ratings")',
    ],
)
def test_a_value_is_found_in_every_form_of_a_message(planted: str) -> None:
    assert len(named(planted)) == 1
