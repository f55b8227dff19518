"""Make small faults in the library and see which tests fail: ``make mutants``.

    python -m benchmarks.mutate 60                                   # of all rooms, seed 0
    python -m benchmarks.mutate 200 --rooms privacy users --seed 1   # of these rooms
    python -m benchmarks.mutate 20 --rooms privacy --tests tests/privacy/test_budget.py --no-stop

A mutant is one expression or statement of one file replaced by another text. Each is run in a copy of the
working tree, which is thrown away at the end, and killed when a test of the selection fails. With
``--no-stop`` every test runs and all that fail are recorded. A mutant that runs much longer than the tests
need without it is stopped and counted apart. Survivors are for reading: many change nothing that a test
could see. Nothing outside of the copy, the report and a temporary folder is written.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "bench-output" / "mutants.jsonl"
#: Rooms whose faults could cost privacy: their files below hushrec/, and the tests that look at them.
ROOMS = {
    "privacy": (r"privacy/(?!testing)\w+", "tests/privacy"),
    "users": (
        "training/(users|gate|partitioned)",
        "tests/test_users.py tests/test_gate.py tests/test_partitioned.py",
    ),
    "engines": (r"engines/.*", "tests/engines"),
    "data": (r"data/\w+", "tests/data"),
    "kernels": (r"kernels/\w+", "tests/kernels"),
    "algorithms": (r"algorithms/\w+", "tests/algorithms"),
}
_COPIED = ("hushrec", "tests", "benchmarks", "examples", "docs")
_HEAVY = ("hypothesis", "mpmath", "numba", "pandas", "pyarrow.parquet", "pytest", "scipy.sparse.linalg")
_COMPILED = re.compile(r"\bnjit\b|simd\.(compiled|inner)")


# what a mutant is


class Mutant(NamedTuple):
    """Bytes `begin` to `end` of a file are replaced by `text`."""

    path: str
    line: int
    operator: str
    begin: int
    end: int
    text: str

    def planted(self, raw: bytes) -> bytes:
        """Return the file's bytes with the mutant in them."""
        return raw[: self.begin] + self.text.encode() + raw[self.end :]


_OTHER: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Pow: ("**", "*"), ast.Mod: ("%", "+"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"),
}  # fmt: skip
_CLIP = re.compile(r"clip|clamp|trunc|^(min|max)(imum)?$|or_zero")
_FACTOR = re.compile(r"clip|bound(?!ed)|sensitivity|sigma|scale|norm$|(^|_)(sd|mu|epsilon|delta)$")


class _Finder(ast.NodeVisitor):
    """Find the mutants of a file; annotations, docstrings, imports and f-strings are left alone."""

    def __init__(self, path: str, raw: bytes) -> None:
        self.path, self.raw, self.found = path, raw, list[Mutant]()
        self.starts = [0]
        for line in raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def _span(self, node: Any) -> tuple[int, int]:
        first, last = self.starts[node.lineno - 1], self.starts[node.end_lineno - 1]
        return first + node.col_offset, last + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self.raw[begin:end].decode()

    def _add(self, operator: str, node: Any, text: str) -> None:
        self.found.append(Mutant(self.path, node.lineno, operator, *self._span(node), text))

    def _between(self, operator: str, left: Any, right: ast.AST, kind: ast.AST) -> None:
        begin, end = self._span(left)[1], self._span(right)[0]
        gap, (old, new) = self.raw[begin:end].decode(), _OTHER.get(type(kind), ("", ""))
        if old and gap.count(old) == 1:
            self.found.append(Mutant(self.path, left.lineno, operator, begin, end, gap.replace(old, new)))

    def _leave(self, node: ast.AST) -> None:
        pass

    visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Assert = _leave

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        values = [node.left, *node.comparators]
        for left, right, kind in zip(values, values[1:], node.ops):
            self._between("comparison", left, right, kind)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (isinstance(getattr(side, "value", 0), str | bytes) for side in (node.left, node.right))
        if not any(texts) and not isinstance(node.left, ast.JoinedStr):
            self._between("arithmetic", node.left, node.right, node.op)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:]):
            self._between("boolean", left, right, node.op)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self._add("sign or not dropped", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool | int):
            self._add("constant", node, str(not value if isinstance(value, bool) else value + 1))
        elif isinstance(value, float):
            self._add("constant", node, f"(2 * {self._text(node)})" if value else "1.0")

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            for value in ("True", "False"):
                self._add("condition", node.test, value)
        self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._add("statement deleted", node, "pass")
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add("refusal dropped", node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and ast.unparse(node.value) != "None":
            self._add("return value", node, "return None")
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._add("first of a loop only", node.iter, f"list({self._text(node.iter)})[:1]")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "float64":
            self._add("float32", node, f"{self._text(node.value)}.float32")
        self._factor(node, node.attr)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._factor(node, node.id)

    def _factor(self, node: ast.Name | ast.Attribute, name: str) -> None:
        if isinstance(node.ctx, ast.Load) and _FACTOR.search(name):
            self._add("bound times sqrt 2", node, f"(2**0.5 * {self._text(node)})")

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if _CLIP.search(name) and len(node.args) > 1:
            self._add("clip dropped", node, f"({self._text(node.args[0])})")
        if name in ("add_gaussian", "add_laplace", "flip") and node.args:
            self._add("exact for noisy", node, f"({self._text(node.args[0])})")
        if name in ("urandom", "token_bytes"):
            self._add("same key again", node, f"bytes({self._text(node.args[0])})")
        if isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.visit(part)


def mutants_of(path: str, raw: bytes) -> list[Mutant]:
    """Return all mutants of a file that compile, in the order of the source."""
    finder = _Finder(path, raw)
    finder.visit(ast.parse(raw))
    return [each for each in finder.found if _compiles(each.planted(raw))]


def _compiles(raw: bytes) -> bool:
    try:
        return bool(compile(raw, "mutant", "exec"))
    except SyntaxError:
        return False


def sample(rooms: list[str], seed: int, size: int) -> list[Mutant]:
    """Return mutants of rooms: an operator is drawn, then one of its places; a longer sample begins alike."""
    patterns = "|".join(ROOMS[room][0] if room in ROOMS else re.escape(room) for room in rooms)
    left, rng = dict[str, list[Mutant]](), random.Random(seed)
    for path in sorted((ROOT / "hushrec").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if re.fullmatch(f"hushrec/({patterns})(\\.py)?", name.removesuffix(".py")):
            for each in mutants_of(name, path.read_bytes()):
                left.setdefault(each.operator, []).append(each)
    for operator, places in left.items():
        random.Random(f"{seed} {operator}").shuffle(places)
    order: list[Mutant] = []
    while left and len(order) < size:
        operator = rng.choice(sorted(left))
        order.append(left[operator].pop())
        left = {name: places for name, places in left.items() if places}
    return order


# running tests on one


class Copy:
    """A copy of the working tree in which one file at a time is another; for a ``with``."""

    def __enter__(self) -> Copy:
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-")
        self.tree = Path(self._folder.name) / "tree"
        for name in _COPIED:
            shutil.copytree(ROOT / name, self.tree / name)
        for file in (*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.cff")):
            shutil.copy2(file, self.tree)
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, tests: list[str], changed: dict[str, bytes], limit: float, stop: bool = True) -> dict:
        """Run tests with some files changed; return what failed, in which error, and how it ended.

        Returns
        -------
        dict
            ``status``: "survived", "killed", "timed out" or "no tests"; ``failed``: test to name of error;
            ``log``: what pytest printed.
        """
        before = {path: (self.tree / path).read_bytes() for path in changed}
        times = {path: (self.tree / path).stat() for path in changed}
        compiled = any(_COMPILED.search(raw.decode()) for raw in before.values())
        out = Path(self._folder.name) / "out"
        out.mkdir()
        try:
            for path, raw in changed.items():
                (self.tree / path).write_bytes(raw)
            process = _server().Process(target=_run, args=(self.tree, out, tests, stop, compiled))  # type: ignore[attr-defined]
            process.start()
            process.join(limit)
            late = process.is_alive()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own children too
            process.join()
            failed, code = {}, 1  # a test that ends the process kills too
            if (out / "result.json").exists():
                failed, code = json.loads((out / "result.json").read_text())
            ended = {0: "survived", 4: "no tests", 5: "no tests"}.get(code, "killed")
            log = (out / "log").read_text(errors="replace") if (out / "log").exists() else ""
            return {"status": "timed out" if late else ended, "failed": failed, "log": log}
        finally:
            for path, raw in before.items():
                (self.tree / path).write_bytes(raw)
                os.utime(self.tree / path, ns=(times[path].st_atime_ns, times[path].st_mtime_ns))
            shutil.rmtree(out, ignore_errors=True)


def _server() -> multiprocessing.context.BaseContext:
    """Return a context whose processes are forks of one that has imported the heavy libraries, and not us."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_HEAVY))
    return context


class _Recorder:
    """A pytest plugin: the tests that failed and the errors they failed with."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        self.failed[node.nodeid] = call.excinfo.type.__name__


def _run(tree: Path, out: Path, tests: list[str], stop: bool, compiled: bool) -> None:
    """Run tests in a tree, in a process of its own; planted files leave no byte code or machine code."""
    os.setsid()
    log = os.open(out / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    import hypothesis
    import numba
    import pytest

    os.chdir(tree)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT), str(tree)))]
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in [n for n in sys.modules if n.split(".")[0] in ("hushrec", "tests", "benchmarks")]:
        del sys.modules[name]
    if compiled:  # machine code of whatever calls the changed function is made anew
        os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = str(out / "numba")
    calm = list(hypothesis.HealthCheck)
    hypothesis.settings.register_profile("calm", deadline=None, suppress_health_check=calm, database=None)
    hypothesis.settings.load_profile("calm")
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={out}/tmp", *(["-x"] if stop else [])]
    recorder = _Recorder()
    code = pytest.main(["-q", *options, *tests], plugins=[recorder])
    (out / "result.json").write_text(json.dumps([recorder.failed, int(code)]))


def run_all(chosen: list[Mutant], tests: list[str], report: Path, stop: bool = True) -> Counter[str]:
    """Run tests on every mutant; print and record what came of each, and return how many of each kind."""
    count = Counter[str]()
    report.parent.mkdir(exist_ok=True)
    with Copy() as copy, report.open("a", encoding="utf-8") as file:
        start = time.perf_counter()
        clean = copy.run(tests, {}, 3600.0)
        limit = 30 + 4 * (time.perf_counter() - start)
        if clean["status"] != "survived":
            sys.exit(f"Without a mutant the tests must pass:\n{clean['log'][-2000:]}")
        for mutant in chosen:
            raw = (copy.tree / mutant.path).read_bytes()
            found = copy.run(tests, {mutant.path: mutant.planted(raw)}, limit, stop)
            status, killers, old = found["status"], list(found["failed"]), raw[mutant.begin : mutant.end]
            where = f"{mutant.path}:{mutant.line} {mutant.operator}: {old.decode()} -> {mutant.text}"
            print(f"{status:10} {where} {' '.join(killers[:1])}", flush=True)
            file.write(json.dumps({"mutant": where, "status": status, "killers": killers}) + "\n")
            file.flush()
            count[status] += 1
    return count


def main() -> None:
    """Sample mutants, run tests on each, and print how many were killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mutants", type=int, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), help=" ".join(ROOMS) + ", or files")
    parser.add_argument("--tests", nargs="+", help="files of tests; by default those of the rooms")
    parser.add_argument("--no-stop", action="store_true", help="run all tests, record all that fail")
    parser.add_argument("--out", type=Path, default=REPORT, help="lines of JSON, added to")
    given = parser.parse_args()
    tests = given.tests or [file for room in given.rooms for file in ROOMS[room][1].split()]
    count = run_all(sample(given.rooms, given.seed, given.mutants), tests, given.out, not given.no_stop)
    print(", ".join(f"{number} {kind}" for kind, number in count.most_common()))


if __name__ == "__main__":
    main()
