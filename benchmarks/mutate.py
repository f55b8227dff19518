"""Make small faults in the library and see which tests fail: ``make mutants``.

    python -m benchmarks.mutate 60                                   # of all rooms, seed 0
    python -m benchmarks.mutate 200 --rooms privacy users --seed 1   # of these rooms
    python -m benchmarks.mutate 200 --rooms privacy users --seed 1 --continue    # after it was cut off
    python -m benchmarks.mutate 20 --rooms privacy/budget --tests tests/privacy/test_budget.py

A mutant is one expression or statement of one file replaced by another text. It is run in a copy of the
working tree, which is thrown away at the end, and killed when a test fails. It meets the tests of its
file's name, then the others of its room, those that name its file before the rest, and only if it survives
them the tests that look at all rooms together; the first failure ends it. Tests marked ``full`` are left
out. A mutant by which a test runs much longer than any does is stopped and counted apart. Each outcome is a
line of the report, which ``--continue`` extends. Survivors are for reading: many change nothing
that a test could see. Nothing outside of the copy, the report and a temporary folder is written.
"""

from __future__ import annotations

import argparse
import ast
import bisect
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
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "bench-output" / "mutants.jsonl"
#: Rooms below hushrec/ with faults that could cost privacy.
ROOMS = ["privacy", "training", "engines", "data", "kernels", "models"]
#: Tests that look at all rooms together.
NETS = "models/test_*.py", "endtoend/test_*.py", "evaluation/test_*.py", "test_*.py"
_COPIED = ("hushrec", "tests", "benchmarks", "examples", "docs")
TOY = os.environ.get("TOY") == "1"
_HEAVY = ["hypothesis", "mpmath", "pandas", "pyarrow.parquet", "pytest", "scipy.stats", "benchmarks.warm"]
#: Modules that stay loaded, with their machine code, where none of them is changed.
_MACHINE_CODE = {"machine_code", "kernels.simd", "kernels.cholesky", "kernels.compiled_loops"}


# definition of a mutant


class Mutant(NamedTuple):
    """Bytes `begin` to `end` of a file are replaced by `text`."""

    path: str
    where: str  # for people: file, line, column, operator, old and new text
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

    def _add(self, operator: str, node: Any, text: str) -> None:
        begin, end = node if isinstance(node, tuple) else self._span(node)
        line = bisect.bisect_right(self.starts, begin)
        at = f"{self.path}:{line}:{begin - self.starts[line - 1]}"
        where = f"{at} {operator}: {self.raw[begin:end].decode()} -> {text}"
        self.found.append(Mutant(self.path, where, operator, begin, end, text))

    def _between(self, operator: str, left: Any, right: ast.AST, kind: ast.AST) -> None:
        begin, end = self._span(left)[1], self._span(right)[0]
        gap, (old, new) = self.raw[begin:end].decode(), _OTHER.get(type(kind), ("", ""))
        if old and gap.count(old) == 1:
            self._add(operator, (begin, end), gap.replace(old, new))

    def visit_JoinedStr(self, node: ast.AST) -> None:
        pass

    visit_Import = visit_ImportFrom = visit_Assert = visit_JoinedStr

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
        self._add("sign or not dropped", node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool | int):
            self._add("constant", node, str(not value if isinstance(value, bool) else value + 1))
        elif isinstance(value, float):
            self._add("constant", node, f"(2 * {ast.unparse(node)})" if value else "1.0")

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            for value in ("True", "False"):
                self._add("condition", node.test, value)
        self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_Expr(self, node: ast.Expr | ast.Raise | ast.Return) -> None:
        value = getattr(node, "value", None)
        if isinstance(node, ast.Return):
            if value is not None and ast.unparse(value) != "None":
                self._add("return value", node, "return None")
        elif not isinstance(value, ast.Constant):
            self._add("refusal dropped" if isinstance(node, ast.Raise) else "statement deleted", node, "pass")
        self.generic_visit(node)

    visit_Raise = visit_Return = visit_Expr

    def visit_For(self, node: ast.For) -> None:
        self._add("first of a loop only", node.iter, f"list({ast.unparse(node.iter)})[:1]")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name | ast.Attribute) -> None:
        name = getattr(node, "attr", getattr(node, "id", ""))
        if name == "float64":
            self._add("float32", node, "np.float32")
        if isinstance(node.ctx, ast.Load) and _FACTOR.search(name):
            self._add("bound times sqrt 2", node, f"(2**0.5 * {ast.unparse(node)})")
        self.generic_visit(node)

    visit_Attribute = visit_Name

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if _CLIP.search(name) and len(node.args) > 1:
            self._add("clip dropped", node, f"({ast.unparse(node.args[0])})")
        if name in ("add_gaussian", "add_laplace", "flip") and node.args:
            self._add("exact for noisy", node, f"({ast.unparse(node.args[0])})")
        if isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)
        for part in (*node.args, *node.keywords):
            self.visit(part)


def mutants_of(path: str, raw: bytes) -> list[Mutant]:
    """Return all mutants of a file that compile, in the order of the source."""
    finder, tree = _Finder(path, raw), ast.parse(raw)
    for node in ast.walk(tree):
        for field in {"annotation", "returns", "decorator_list"} & set(node._fields):
            setattr(node, field, [])
    finder.visit(tree)
    found = list[Mutant]()
    for each in finder.found:
        with contextlib.suppress(SyntaxError):
            compile(each.planted(raw), "mutant", "exec")
            found.append(each)
    return found


def sample(rooms: list[str], seed: int, size: int) -> list[Mutant]:
    """Return mutants of rooms: an operator is drawn, then one of its places; a longer sample begins alike."""
    left, rng = dict[str, list[Mutant]](), random.Random(seed)
    folders = [ROOT / "hushrec" / room for room in rooms]
    for path in sorted({path for at in folders for path in (*at.rglob("*.py"), at.with_suffix(".py"))}):
        if path.exists() and path.name != "testing.py":
            for each in mutants_of(str(path.relative_to(ROOT)), path.read_bytes()):
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
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # tests sync thousands of charges
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-", dir=memory)
        self.tree = Path(self._folder.name) / "tree"
        for name in _COPIED:
            shutil.copytree(ROOT / name, self.tree / name)
        for file in (*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.cff")):
            shutil.copy2(file, self.tree)
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, tests: list[str], changed: dict[str, bytes], longest: float = 180.0) -> dict:
        """Run tests with some files changed, up to the first that fails or goes on for `longest` seconds.

        Returns
        -------
        dict
            ``status``: "survived", "killed", "timed out" or "no tests"; ``failed``: test to name of error;
            ``seconds``: by file of tests; ``log``: what pytest printed.
        """
        out, folders = Path(self._folder.name) / "out", {Path(path).parts[0] for path in changed}
        for folder in folders:  # with the machine code in it, which is that of the unchanged files
            shutil.copytree(self.tree / folder, out / folder)
        out.mkdir(exist_ok=True)
        try:
            for path, raw in changed.items():
                (self.tree / path).write_bytes(raw)
            context = multiprocessing.get_context("forkserver")  # of one that has imported what takes long
            context.set_forkserver_preload(_HEAVY)
            kept = {f"hushrec.{name}" for name in _MACHINE_CODE}
            if kept & {path.removesuffix(".py").replace("/", ".") for path in changed}:
                kept = set()
            process = context.Process(target=_run, args=(self.tree, out, tests, longest, kept))
            process.start()
            process.join()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children
            late = process.exitcode == -signal.SIGALRM
            found = {"status": "timed out" if late else "killed", "failed": {}, "seconds": {}}
            if (out / "result.json").exists():
                found |= json.loads((out / "result.json").read_text())
            return found | {"log": (out / "log").read_text(errors="replace")}
        finally:
            for folder in folders:
                shutil.rmtree(self.tree / folder)
                (out / folder).rename(self.tree / folder)
            shutil.rmtree(out, ignore_errors=True)


class _Recorder:
    """A pytest plugin: the tests that failed and their errors, seconds by file; it ends what goes on."""

    def __init__(self, longest: float) -> None:
        self.longest, self.failed, self.seconds = longest, dict[str, str](), Counter[str]()

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self.longest)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid.split("::")[0]] += report.duration

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        self.failed[node.nodeid] = call.excinfo.type.__name__


def _run(tree: Path, out: Path, tests: list[str], longest: float, kept: set[str]) -> None:
    """Run tests in a tree, in a process of its own; planted files leave no byte code."""
    os.setsid()
    os.dup2(os.dup2(os.open(out / "log", os.O_WRONLY | os.O_CREAT), 1), 2)
    import hypothesis
    import pytest

    os.chdir(tree)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT), str(tree)))]
    sys.dont_write_bytecode = True
    sys.modules.pop("__mp_main__", None)  # by which hushrec.testing knows a script that ran again
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in [n for n in sys.modules if n.split(".")[0] in ("hushrec", "tests", "benchmarks")]:
        if name not in kept:
            del sys.modules[name]
    calm = {"deadline": None, "suppress_health_check": list(hypothesis.HealthCheck), "database": None}
    phases = [phase for phase in hypothesis.Phase if phase.name not in ("shrink", "explain")]
    hypothesis.settings.register_profile("calm", derandomize=True, phases=phases, **calm)
    hypothesis.settings.load_profile("calm")
    options = ["-qx", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", f"--basetemp={out}/tmp"]
    recorder = _Recorder(longest)
    code = pytest.main([*options, *tests], plugins=[recorder])
    status = {0: "survived", 4: "no tests", 5: "no tests"}.get(int(code), "killed")
    result = {"status": status, "failed": recorder.failed, "seconds": recorder.seconds}
    (out / "result.json").write_text(json.dumps(result))


# running tests on many


def stages(path: str) -> list[list[str]]:
    """Return the tests that a mutant of a file meets: those of its name and room, then those of all rooms."""
    tests, room = ROOT / "tests", path.split("/")[1]
    same = sorted(tests.rglob(f"test_{Path(path).stem}.py"))
    own = sorted((tests / room).rglob("test_*.py")) or sorted(tests.glob("test_*.py"))
    nets = [file for net in NETS for file in sorted(tests.glob(net))]
    first = list(dict.fromkeys(str(file.relative_to(ROOT)) for file in (*same, *own)))
    return [first, [str(file.relative_to(ROOT)) for file in nets if str(file.relative_to(ROOT)) not in first]]


def ordered(path: str, files: list[str], seconds: dict[str, float]) -> list[str]:
    """Return files of tests, that of a file's name first, then those that name it, the quickest first."""
    name = Path(path).stem
    named = {f for f in files if re.search(rf"\b{name}\b", (ROOT / f).read_text(encoding="utf-8"))}
    return sorted(files, key=lambda f: (Path(f).name != f"test_{name}.py", f not in named, seconds[f]))


def _measure(copy: Copy, files: list[str], seconds: dict[str, float]) -> None:
    """Run tests once without a mutant, and keep their seconds."""
    if new := [file for file in files if file not in seconds]:
        clean = copy.run(new, {})
        if clean["status"] != "survived":
            sys.exit(f"Without a mutant the tests must pass:\n{clean['log'][-2000:]}")
        seconds |= dict.fromkeys(new, 0.0) | clean["seconds"]


def run_all(chosen: list[Mutant], tests: list[str], report: Path) -> Counter[str]:
    """Run tests, or those of its stages, on each mutant that a report lacks; print and record the outcome."""
    report.parent.mkdir(exist_ok=True)
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    found = {line["mutant"]: line["status"] for line in map(json.loads, lines)}
    seconds = dict[str, float]()
    with Copy() as copy, report.open("a", encoding="utf-8") as file:
        for mutant in (each for each in chosen if each.where not in found):
            changed = {mutant.path: mutant.planted((copy.tree / mutant.path).read_bytes())}
            for files in filter(None, [tests] if tests else stages(mutant.path)):
                _measure(copy, files, seconds)
                came = copy.run(ordered(mutant.path, files, seconds), changed)
                if came["status"] in ("killed", "timed out"):
                    break
            line = {"mutant": mutant.where, "status": came["status"], "killer": [*came["failed"], ""][0]}
            print(*line.values(), flush=True)
            print(json.dumps(line), file=file, flush=True)
            found[mutant.where] = came["status"]
    return Counter(found[each.where] for each in chosen)


def main() -> None:
    """Sample mutants, run tests on each, and print how many were killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mutants", type=int, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), help=" ".join(ROOMS) + ", or files")
    parser.add_argument("--tests", nargs="+", default=[], help="files of tests, for all mutants alike")
    parser.add_argument("--continue", action="store_true", dest="goes_on", help="keep what is in the report")
    parser.add_argument("--out", type=Path, default=REPORT, help="the report, lines of JSON")
    given = parser.parse_args()
    if TOY:
        given.mutants, given.tests = 1, ["tests/privacy/test_budget.py"]
        given.rooms, given.out = ["privacy/budget"], given.out.with_name("toy-mutants.jsonl")
    if not given.goes_on:
        given.out.unlink(missing_ok=True)
    chosen = sample(given.rooms, given.seed, given.mutants)
    count = run_all(chosen, given.tests, given.out)
    print(", ".join(f"{number} {kind}" for kind, number in count.most_common()))


if __name__ == "__main__":
    main()
