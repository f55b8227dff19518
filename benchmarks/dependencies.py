"""Run the tests in a separate environment: ``make test DEPENDENCIES=newest`` or ``oldest``. Or lock versions.

``newest`` takes the newest release of every dependency, beyond the upper bounds of pyproject.toml: it shows
the next bounds. ``oldest`` takes the lower bounds of all dependencies and extras. LensKit asks for other
versions of pandas and pyarrow, so it is installed last, and its test runs after the others. The environment's
``report.json`` keeps the versions and the outcome, which ``make trust`` prints (D8).

``python -m benchmarks.dependencies lock`` installs nothing. It writes the newest versions within the bounds
to requirements-dev.lock, which every environment of the Makefile uses.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-dev.lock"
TOOLS = {
    "ruff",
    "mypy",
    "import-linter",
    "check-jsonschema",
    "cyclonedx-bom",
}  # they check the code and do not run with it
LENSKIT_TEST = "tests/integrations/test_lenskit.py"
TORCH = "torch==2.13.0"  # of LensKit: one release for both, since it is the largest download


def requirements() -> dict[str, str]:
    """Lower bound by name, of all that the library, its extras and its tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    found = dict(re.fullmatch(r"([\w.-]+)(?:>=([\w.]+))?,?.*", line).groups() for line in lines)
    return {name: low for name, low in found.items() if low and name not in TOOLS}


def report_of(which: str) -> Path:
    """Return the file in which the last run of an environment is written down."""
    return ROOT / f".venv-{which}" / "report.json"


def run_tests(python: Path, tests: list[str], *options: str) -> tuple[int, int]:
    """Return how many tests ran and how many failed; at least one if pytest failed."""
    xml = python.parents[1] / "report.xml"
    # pyarrow 18 has a package of the name benchmarks too
    code = subprocess.run(
        [python, "-m", "pytest", *tests, f"--junitxml={xml}", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    ).returncode
    suite = next(ElementTree.parse(xml).iter("testsuite"))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return int(suite.get("tests", 0)) - int(suite.get("skipped", 0)), max(failed, int(code != 0))


def lock() -> int:
    """Write what pip would install now for development."""
    report = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        "--report",
        "-",
    ]
    found = subprocess.run(
        [*report, f"{ROOT}[test,docs,release,bench]"], stdout=subprocess.PIPE, check=True
    ).stdout
    packages = [entry["metadata"] for entry in json.loads(found)["install"]]
    lines = {f"{each['name']}=={each['version']}" for each in packages if each["name"] != "hushrec"}
    LOCK.write_text("\n".join(sorted(lines, key=str.lower)) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    """Make the environment, run the tests, write the report; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["newest", "oldest", "lock"])
    parser.add_argument("tests", nargs="*", default=["tests"])
    arguments = parser.parse_args()
    if arguments.which == "lock":
        return lock()
    folder = ROOT / f".venv-{arguments.which}"
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pinned = arguments.which == "oldest"
    wanted = {name: f"{name}=={low}" if pinned else name for name, low in requirements().items()}
    lenskit = wanted.pop("lenskit")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", *wanted.values()], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, check=True)
    entries = json.loads(listed.stdout)
    versions = {entry["name"].lower().replace("_", "-"): entry["version"] for entry in entries}
    ran, failed = run_tests(python, arguments.tests, "--numprocesses=logical", "--maxprocesses=4")
    if any(LENSKIT_TEST.startswith(test) for test in arguments.tests):
        subprocess.run([*pip, lenskit, TORCH], check=True)
        last = run_tests(python, [LENSKIT_TEST])
        ran, failed = ran + last[0], failed + last[1] + (last[0] == 0)
    report = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": {name: versions[name.lower()] for name in wanted},
        "tests": ran,
        "failed": failed,
    }
    report_of(arguments.which).write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(json.dumps(report))
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
