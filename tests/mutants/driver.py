"""Mutants that nobody chose: sampled with a seed, run against the tests that cover them, kept by commit.

    python -m tests.mutants.driver 60            # or: make mutants MUTANTS=1000
    python -m tests.mutants.driver --write 0     # the table of seed 0 at this commit into docs/mutants.md
    python -m tests.mutants.driver 60 --seed 1 --only "privacy/season.*" --tests "season|continuing"
    python -m tests.mutants.driver 1000 --limit 600      # those that ran out of time, again
    python -m tests.mutants.driver 1000 --again COMMIT   # those that the tests of that commit did not kill
    python -m tests.mutants.driver --write 0:COMMIT 1    # with what that commit's tests killed; another seed

The committed tree is taken, never the files being edited. A mutant lives in a copy of it that is made anew
for each one, with the machine code that numba keeps beside its sources: copied from a clean run, less the
index of every module that is, or imports, the changed file. Tests run quickest first until one fails. A run
that is cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from tests.mutants.driver_map import calm_hypothesis, enter, record
from tests.mutants.operators import Site, mutated, sites

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "mutants.md"
EQUIVALENT = Path(__file__).with_name("driver_equivalent.json")
MARK = "\n## Mutants that nobody chose\n"
HOW = """
Sampled by `tests/mutants/driver.py`, which knows no test: `make mutants` runs 60 of seed 0, and
`make mutants MUTANTS=1000` the long form. Each table was written by it. A time-out is unresolved. Equivalent
is what no test could show, for a reason from a fixed list.
"""
ROOMS = {  # files of hushrec/
    "privacy": r"privacy/(?!testing).*",
    "users and gates": r"(users|gate|estimator|partitioned|continuing|kalman"
    r"|engines/(parts|dask|secure/gate))",
    "algorithms": r"(algorithms|papers/(?!masked)\w+)/.*",
    "data": r"data/(ratings|domain|readers|building|columns|files|textfiles|ids|integers|keys|times|sampling"
    r"|sources|looking|splits|store|preparing)",
    "kernels": r"kernels/(residuals|fixed_point|sparse_rows|packed|symmetric|sweeps|topk|one_bit)",
    "secure aggregation": r"(engines/secure/(?!gate)\w+|network/messages|papers/masked/(masking|messages))",
    "plans and prints": r"(checks|evaluation/(compare|runs|tuning|expected_loss|metrics|taste)"
    r"|cli/(train|retrain|prepare|tune|compare|evaluate|recommend|similar|plan|show(_plan|_model)?|tables|chosen"
    r"|report|files|(ledger|season)_\w+))",
    "serving": r"(batch|billboard|int8|modelfile|serving|server/\w+"
    r"|cli/(serve|export|check|split|predict|cluster))",
    "audit": r"audit/(?!plots)\w+",
}
#: Of an algorithm, what touches rows or says what is charged; the rest is arithmetic on released values.
USERS_SIDE = re.compile(r"\b(ratings|_?rows|matrix|Bounded|Bound|releases|gate|sensitivity)\b")
#: They compare with bytes of our own, look at documents, take the time, or are the other mutants.
NO_KILLERS = re.compile(
    r"tests/mutants/|test_(dependencies|documents|errata|frontier|privacy_page|waiting|demo|generators|plots)\.py"
    r"|same_on_every_machine|stored_bytes|golden_(key|hash|bytes)|test_import|start_?up"
)
REASONS = {
    "same value": "the changed expression has the same value wherever the code can be reached",
    "same law": "only how draws are made differs, their law is the same",
    "speed only": "how fast, or in which blocks or order, not what",
    "another check": "a second check refuses the same inputs with the same words' meaning",
    "resources only": "a handle is closed a little later, by the interpreter",
    "words only": "words of a public message, with nothing of a row in them",
}
#: Tests that read a file of hushrec/ instead of running it, with that file as their case.
READERS = "tests/test_messages.py"
STAGES = (25, 250, 10**6)


# the sample


def sample(tree: Path, seed: int, size: int, only: str = "") -> list[Site]:
    """The first mutants of a tree in the order of the sample: an operator by lot, then one of its places.

    ``only`` is a pattern of the files of hushrec/ that are sampled from; without it all rooms are.
    """
    rng, left = random.Random(seed), defaultdict(list)
    for path in sorted((tree / "hushrec").rglob("*.py")):
        source, name = path.read_text(encoding="utf-8"), str(path.relative_to(tree))
        wanted = room(name) and (not only or re.fullmatch(rf"hushrec/({only})\.py", name))
        for site in sites(name, source) if wanted else ():
            if private(site, source):
                left[site.operator].append(site)
    for operator, places in left.items():
        random.Random(f"{seed} {operator}").shuffle(places)
    order: list[Site] = []
    while left and len(order) < size:
        operator = rng.choice(sorted(left))
        site = left[operator].pop()
        if compiles(mutated((tree / site.path).read_text(encoding="utf-8"), site)):
            order.append(site)
        if not left[operator]:
            del left[operator]
    return order


def private(site: Site, source: str) -> bool:
    """All of a room, but of the algorithms only functions that have to do with rows or charges."""
    if room(site.path) != "algorithms" or site.function.split(".")[0].endswith("Users"):
        return True
    return bool(USERS_SIDE.search("\n".join(source.splitlines()[site.first : site.last])))


def compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def room(path: str) -> str:
    """The room that a file belongs to, or nothing."""
    return next((name for name, files in ROOMS.items() if re.fullmatch(rf"hushrec/{files}\.py", path)), "")


def key(site: Site, tree: Path) -> str:
    """What a mutant is called from one commit to the next."""
    raw = (tree / site.path).read_bytes()
    before = " ".join(raw[site.begin : site.end].decode().split())
    line, column = raw.decode().splitlines()[site.line - 1].strip(), raw[: site.begin].rpartition(b"\n")[2]
    after = f"{' '.join(site.text.split())} at {len(column)} of: {line}"
    return f"{site.path} {site.function}: {site.operator}: {before} -> {after}"


# the map from lines to tests


def make_map(home: Path, processes: int, tests: str = "") -> None:
    """Record every file of tests, or those of a pattern, in processes of their own; what is there is kept."""
    tree = home / "pristine"
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", home.name], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "x", "-C", str(tree)], input=archive.stdout, check=True)
    (home / "map").mkdir(exist_ok=True)
    files = [str(p.relative_to(tree)) for p in sorted((tree / "tests").rglob("test_*.py"))]
    wanted = [f for f in files if re.search(tests, f) and not NO_KILLERS.search(f)]
    wanted = [f for f in wanted if not map_of(home, f).exists()]

    import_heavy()
    running: set[int] = set()
    for file in wanted:
        if len(running) == processes:
            running.discard(os.wait()[0])
        print(f"recording {file}", flush=True)
        child = os.fork()
        if not child:
            try:
                silence()
                record(tree, [file], map_of(home, file))
            finally:
                os._exit(0)
        running.add(child)
    while running:
        running.discard(os.wait()[0])


def import_heavy() -> None:
    """What most tests import, once for all forks of this process."""
    import hypothesis  # noqa: F401
    import mpmath  # noqa: F401
    import numba  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import pytest  # noqa: F401
    import scipy.sparse  # noqa: F401


def silence() -> None:
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def map_of(home: Path, file: str) -> Path:
    return home / "map" / f"{file.replace('/', '.')}.json"


class Map:
    """The recorded files put together: tests by line, by kernel, and their seconds."""

    def __init__(self, home: Path) -> None:
        self.tree = home / "pristine"
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.kernels: dict[str, set[str]] = defaultdict(set)
        for path in sorted((home / "map").glob("*.json")):
            part = json.loads(path.read_text())
            members = defaultdict(set)
            for name, test in part["tests"].items():
                if test["passed"] and not NO_KILLERS.search(name):
                    self.seconds[name] = test["seconds"]
                    for context in (name, *test["fixtures"]):
                        members[context].add(name)
            for name, modules in part["kernels"].items():
                for module in modules:
                    self.kernels[module] |= members[name]
            for file, lines in part["lines"].items():
                for line, contexts in lines.items():
                    self.lines[file][int(line)].update(*(members[context] for context in contexts))
        self.imports: dict[str, set[str]] = {}
        for path in (self.tree / "hushrec").rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            named = set(re.findall(r"(?:from|import) (hushrec[\w.]+)", text))
            for package, names in re.findall(r"from (hushrec[\w.]*) import \(?([\w, \n]+)", text):
                named |= {f"{package}.{name}" for name in re.findall(r"\w+", names)}
            self.imports[module_of(path, self.tree)] = named

    def importers(self, path: str) -> set[str]:
        """The module of a file and all that import it, directly or not."""
        found, before = {module_of(self.tree / path, self.tree)}, set()
        while found != before:
            before = found
            found = found | {m for m, imported in self.imports.items() if imported & found}
        return found

    def tests(self, site: Site) -> list[str]:
        """The tests that run a mutant: quickest first, of equally quick ones those of its file and folder."""
        source = (self.tree / site.path).read_text(encoding="utf-8")
        lines, begin = self.lines[site.path], site.line
        if site.compiled:
            found = set().union(*(self.kernels[m] for m in self.importers(site.path)))
        elif not site.last:
            found = self._naming(name_given_at(source, site.line), site.path) | lines[site.line]
        else:
            end = begin + source.encode()[site.begin : site.end].decode().count("\n")
            found = set().union(*(lines[n] for n in range(begin, end + 1)))
            if not found or begin < body_at(source, site.first + 1):  # a default is used in the body
                found |= set().union(*(lines[n] for n in range(site.first + 2, site.last + 1)))
        file = f"[{site.path.removeprefix('hushrec/')}]"
        found |= {name for name in self.seconds if name.startswith(READERS) and name.endswith(file)}
        own, folder = re.compile(rf"^[^:]*{Path(site.path).stem}"), f"tests/{site.path.split('/')[1]}/"
        far = {name: 1 if own.match(name) else 2 if name.startswith(folder) else 4 for name in found}
        cost = {name: (self.seconds[name] + 0.05) * far[name] for name in found}
        return sorted(found, key=lambda name: (cost[name], name))

    def _naming(self, name: str, path: str) -> set[str]:
        """The tests that run a line in which a constant or field is named, or kernels of its file."""
        found = set().union(*(self.kernels[m] for m in self.importers(path))) if "kernels" in path else set()
        for file, lines in self.lines.items():
            for number, text in enumerate((self.tree / file).read_text(encoding="utf-8").splitlines(), 1):
                if name and re.search(rf"\b{name}\b", text):
                    found |= lines[number]
        return found or set().union(*self.lines[path].values())


def module_of(path: Path, tree: Path) -> str:
    return str(path.relative_to(tree).with_suffix("")).replace("/", ".").removesuffix(".__init__")


def body_at(source: str, line: int) -> int:
    """The line on which the body of the function that is defined on a line begins; 0 where none is."""
    found = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.lineno == line)
    return next((function.body[0].lineno for function in found), 0)


def name_given_at(source: str, line: int) -> str:
    """The name that a line outside of functions gives a value to, if it does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno <= line <= (node.end_lineno or 0):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            return getattr(target, "id", "")
    return ""


# running


class Chosen:
    """A pytest plugin: the tests of a stage in their order, and what the first failure was."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {name: place for place, name in enumerate(tests)}
        self.killer, self.why = "", ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.killer:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.killer, self.why = report.nodeid, str(getattr(crash, "message", ""))[:120]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.killer:
            self.killer, self.why = f"import of {report.nodeid}", str(report.longrepr)[-120:]


def run_tests(slot: Path, tests: list[str], out: Path) -> None:
    """In a fork of the worker, which has imported numpy, numba and pytest: run, write the verdict, leave."""
    import pytest

    os.setpgid(0, 0)
    silence()
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    enter(slot)
    calm_hypothesis()
    chosen = Chosen(tests)
    # a socket that one test left open must not fail another
    without = ("cacheprovider", "xdist", "unraisableexception", "threadexception")
    options = ["-x", "-q", *(f"-pno:{name}" for name in without), f"--basetemp={slot / 'tmp'}"]
    pytest.main([*options, *sorted({name.split("::")[0] for name in tests})], plugins=[chosen])
    out.write_text(json.dumps([chosen.killer, chosen.why]))
    os._exit(0)


def verdict(slot: Path, tests: list[str], limit: float) -> dict[str, Any]:
    """Run the tests in stages, so that what dies early imports few files; a busy machine gets more time."""
    limit *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    end, done = time.monotonic() + limit, 0
    out = slot / "verdict.json"
    for size in STAGES:
        stage, done = tests[done : done + size], min(done + size, len(tests))
        if not stage:
            break
        out.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            try:
                run_tests(slot, stage, out)
            finally:
                os._exit(1)
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return {"status": "unresolved", "why": f"time-out after {limit:.0f} s"}
            time.sleep(0.05)
        if not out.exists():
            return {"status": "killed", "killer": "(the process died)", "why": ""}
        killer, why = json.loads(out.read_text())
        if killer:
            return {"status": "killed", "killer": killer, "why": why}
    return {"status": "survived"}


def to_run(home: Path, options: argparse.Namespace) -> list[tuple[int, Site]]:
    """Places and mutants of the sample that have no result yet, or ran out of less time than there is now."""
    tree = home / "pristine"
    done = {
        result["key"]
        for result in results(home, options.seed)
        if result["status"] != "unresolved" or result.get("limit", 0) >= options.limit
    }
    if not options.again:
        order = list(enumerate(sample(tree, options.seed, options.mutants, options.only)))
    else:
        left = [r for r in results(home, options.seed, options.again) if alive(r)]
        found = named(tree, [result["key"] for result in left])
        order = [(r["index"], found[r["key"]]) for r in left if r["key"] in found]
    return [(index, site) for index, site in order if key(site, tree) not in done]


def named(tree: Path, keys: list[str]) -> dict[str, Site]:
    """Those of these mutants that the code of a tree still has."""
    files = [tree / file for file in sorted({name.split(" ")[0] for name in keys})]
    sources = {str(p.relative_to(tree)): p.read_text(encoding="utf-8") for p in files if p.exists()}
    found = {key(site, tree): site for path, source in sources.items() for site in sites(path, source)}
    return {name: found[name] for name in keys if name in found}


def alive(result: dict[str, Any]) -> bool:
    return result["status"] in ("survived", "unresolved")


def plant(home: Path, slot: Path, site: Site, importers: set[str]) -> None:
    """A fresh copy of the library with one mutant, less the machine code that may hold what it changes.

    Of a function that is not compiled no other module's machine code holds anything.
    """
    shutil.rmtree(slot / "hushrec", ignore_errors=True)
    shutil.copytree(home / "pristine" / "hushrec", slot / "hushrec")
    path = slot / site.path
    path.write_text(mutated(path.read_text(encoding="utf-8"), site), encoding="utf-8")
    for module in importers if site.compiled or not site.last else ():
        folder = (slot / module.replace(".", "/")).parent / "__pycache__"
        for index in folder.glob(f"{module.split('.')[-1]}.*.nbi"):
            index.unlink()


def work(home: Path, number: int, options: argparse.Namespace) -> None:
    """Every n-th mutant of the sample, in a tree of this worker's own; a second run waits for the first."""
    import_heavy()
    lock = (home / f"lock-{number}").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    order, known = to_run(home, options), Map(home)
    slot = home / f"slot-{number}"
    if not slot.exists():
        shutil.copytree(home / "pristine", slot)
    for index, site in ((index, site) for index, site in order if index % options.processes == number):
        start, tests = time.monotonic(), known.tests(site)
        plant(home, slot, site, known.importers(site.path))
        result = {"index": index, "operator": site.operator, "room": room(site.path)}
        result |= {"key": key(site, home / "pristine"), "line": site.line, "tests": len(tests)}
        result |= verdict(slot, tests, options.limit * (2 if site.compiled else 1))
        if result["status"] == "unresolved":
            result["limit"] = options.limit  # a longer one runs it again
        result["seconds"] = round(time.monotonic() - start, 1)
        with (home / f"results-{options.seed}-{number}.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(f"{index} {result['status']} {result['seconds']} s: {result['key']}", flush=True)


# results


def results(home: Path, seed: int, earlier: str = "") -> list[dict[str, Any]]:
    """What has been run at a commit, in the order of the sample; equivalents marked.

    With those of earlier ones; of what they left alive, what is no longer in the code is gone.
    """
    reasons = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    assert set(reasons.values()) <= set(REASONS), "a reason of driver_equivalent.json is not on the list"
    found = {}
    if earlier:
        for commit in earlier.split(","):
            found |= {result["key"]: result for result in results(home.parent / commit, seed)}
        left = [name for name, result in found.items() if alive(result)]
        for name in set(left) - set(named(home / "pristine", left)):
            found[name] |= {"status": "gone"}
    for path in home.glob(f"results-{seed}-*.jsonl"):
        for line in path.read_text().splitlines():
            result = json.loads(line)
            if result["status"] != "killed" and result["key"] in reasons:
                result |= {"status": "equivalent", "why": reasons[result["key"]]}
            found[result["key"]] = result
    return sorted(found.values(), key=lambda result: result["index"])


def table(home: Path, seed: int, earlier: str = "") -> str:
    """Counts by operator and by room, and every mutant that was not killed."""
    done = results(home, seed, earlier)
    kinds = ("killed", "survived", "unresolved", "equivalent", *(("gone",) if earlier else ()))
    count = Counter(result["status"] for result in done)
    files = [p for p in (home / "pristine" / "tests").rglob("test_*.py") if not NO_KILLERS.search(str(p))]
    recorded = len(list((home / "map").glob("*.json")))
    judged = max(len(done) - count["equivalent"] - count["gone"], 1)
    first, *others = earlier.split(",") if earlier else [home.name]
    sighted = [result for result in results(home.parent / first, seed) if result["status"] != "equivalent"]
    killed = sum(result["status"] == "killed" for result in sighted)
    sure = binomtest(killed, max(len(sighted), 1)).proportion_ci(0.95)
    text = [
        f"\n### Seed {seed}, commit {home.name}\n",
        f"{len(done)} mutants, " + ", ".join(f"{count[kind]} {kind}" for kind in kinds) + ":"
        f" {count['killed'] / judged:.1%} of the {judged} others are killed,"
        f" {killed / max(len(sighted), 1):.1%} of {len(sighted)} at first sight (95% interval"
        f" {sure.low:.1%} to {sure.high:.1%}).\n",
        f"Tests of {recorded} of {len(files)} files were recorded at {home.name} and could kill.",
    ]
    if earlier:
        text[-1] += (
            f" First sight is by the tests of commit {first}. The {len(sighted) - killed} that those left"
            f" alive were run again at {' and '.join([*others, home.name])}, after tests were written or the"
            " code was simplified for them, so only first sight is an estimate."
        )
    text.append("")
    for column in ("operator", "room"):
        text += [f"| {column} | mutants | {' | '.join(kinds)} |", "|---" * (2 + len(kinds)) + "|"]
        for name in sorted({result[column] for result in done}):
            of = Counter(result["status"] for result in done if result[column] == name)
            text.append(f"| {name} | {of.total()} | " + " | ".join(str(of[kind]) for kind in kinds) + " |")
        text.append("")
    text += ["| not killed | mutant |", "|---|---|"]
    for result in done:
        if result["status"] != "killed":
            why = f" ({result['why']})" if result.get("why") else ""
            text.append(f"| {result['status']}{why} | `{result['key'].replace('|', chr(92) + '|')}` |")
    return "\n".join(text) + "\n"


def short(commit: str) -> str:
    rev = ["git", "rev-parse", "--short=9", commit]
    return subprocess.run(rev, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def shorts(commits: str) -> str:
    return ",".join(short(commit) for commit in commits.split(",") if commit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("mutants", type=int, nargs="?", default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one mutant, on a quiet machine")
    parser.add_argument("--only", default="", help="pattern of the files of hushrec/ that are changed")
    parser.add_argument("--tests", default="", help="pattern of the files of tests that may kill")
    parser.add_argument("--again", default="", help="commits: run what their tests left alive")
    parser.add_argument(
        "--write", nargs="+", metavar="SEED[:COMMIT,...]", help="into docs/mutants.md; runs nothing"
    )
    parser.add_argument("--slot", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.again, commit = shorts(options.again), short(options.commit)
    home = ROOT / "bench-output" / "mutants" / commit
    if options.slot is not None:
        work(home, options.slot, options)
    elif options.write:
        text = DOCUMENT.read_text(encoding="utf-8").split(MARK)[0] + MARK + HOW
        for seed, _, earlier in (each.partition(":") for each in options.write):
            text += table(home, int(seed), shorts(earlier))
        DOCUMENT.write_text(text, encoding="utf-8")
    else:
        make_map(home, options.processes, options.tests)
        again = [sys.executable, "-m", "tests.mutants.driver", *sys.argv[1:], "--commit", commit]
        workers = [subprocess.Popen([*again, "--slot", str(n)]) for n in range(options.processes)]
        for worker in workers:
            worker.wait()
        print(table(home, options.seed, options.again))


if __name__ == "__main__":
    main()
