"""Which test runs which line: a pytest plugin that records it, and the map that it makes.

Lines are recorded by ``coverage``, a context a test; what a fixture of a module or session runs belongs to
all tests that use it. Subprocesses are recorded too. A compiled kernel is recorded by the module of the
function that Python calls: it may run whatever that module and those that it imports have compiled.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest

_RC = "[run]\nsource = {source}\ndata_file = {data}\nparallel = true\ncontext = ${{PYTEST_CURRENT_TEST}}\n"


class Recorder:
    """The plugin: one file of tests into one file of lines and one of what is known of the tests."""

    def __init__(self, tree: Path, out: Path) -> None:
        self.tree, self.out, self.context = tree, out, ""
        self.tests: dict[str, dict[str, Any]] = {}
        self.kernels: dict[str, set[str]] = defaultdict(set)
        rc = out.with_suffix(".rc")
        rc.write_text(_RC.format(source=tree / "hushrec", data=out.with_suffix(".lines")))
        os.environ["COVERAGE_PROCESS_START"] = str(rc)
        self.coverage = coverage.Coverage(
            data_file=str(out.with_suffix(".lines")), config_file=False, source=[str(tree / "hushrec")]
        )
        self.coverage.start()
        self._watch_kernels()

    def _watch_kernels(self) -> None:
        from numba.core.dispatcher import Dispatcher

        call = Dispatcher.__call__

        def watched(dispatcher: Any, *args: Any, **kwargs: Any) -> Any:
            self.kernels[self.context].add(dispatcher.py_func.__module__)
            return call(dispatcher, *args, **kwargs)

        Dispatcher.__call__ = watched

    def _switch(self, context: str) -> None:
        self.context = context
        self.coverage.switch_context(context)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        for name, module in list(sys.modules.items()):
            if name.startswith("hushrec."):
                for value in list(vars(module).values()):
                    getattr(value, "cache_clear", lambda: None)()
        wide = [
            f"fixture {definition.argname}"
            for definitions in item._fixtureinfo.name2fixturedefs.values()
            for definition in definitions
            if definition.scope != "function"
        ]
        self.tests[item.nodeid] = {"seconds": 0.0, "passed": False, "fixtures": sorted(set(wide))}
        self._switch(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before = self.context
        if fixturedef.scope != "function":
            self._switch(f"fixture {fixturedef.argname}")
        try:
            return (yield)
        finally:
            if self.context != before:
                self._switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid]["seconds"] += report.duration
        if report.when == "call":
            self.tests[report.nodeid]["passed"] = report.passed

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()
        data = self.coverage.get_data()
        more = [str(path) for path in self.out.parent.glob(f"{self.out.stem}.lines.*")]
        for path in more:
            other = coverage.CoverageData(path)
            other.read()
            data.update(other)
        lines = {
            str(Path(file).relative_to(self.tree)): {
                line: sorted({context.split(" (")[0] for context in contexts} - {""})
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        for path in more:
            Path(path).unlink()
        known = {"tests": self.tests, "kernels": {name: sorted(m) for name, m in self.kernels.items()}}
        self.out.write_text(json.dumps({**known, "lines": lines}))


def enter(tree: Path) -> None:
    """From now on this process, and what it starts, sees the library and the tests of a tree."""
    for name in [n for n in sys.modules if n.split(".")[0] in ("tests", "hushrec", "benchmarks")]:
        del sys.modules[name]
    here = ("", str(Path(__file__).parents[2]))
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in here)]
    os.environ["PYTHONPATH"] = str(tree)
    os.chdir(tree)


def calm_hypothesis() -> None:
    """No test fails for being slower than usual."""
    calm = list(hypothesis.HealthCheck)
    hypothesis.settings.register_profile("mutants", deadline=None, suppress_health_check=calm, database=None)
    hypothesis.settings.load_profile("mutants")


def record(tree: Path, files: list[str], out: Path) -> None:
    """Run files of tests in a tree and write what they run; for a process of its own."""
    enter(tree)
    calm_hypothesis()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={out.with_suffix('.tmp')}"]
    pytest.main([*options, *files], plugins=[Recorder(tree, out)])
