"""Run the tests in a separate environment: ``make test DEPENDENCIES=newest`` or ``oldest``.

``newest`` takes the newest release of every dependency, beyond the upper bounds of pyproject.toml: it shows
the next bounds. ``oldest`` takes the lower bounds themselves. The environment's ``report.json``
keeps the versions and the outcome, which ``make trust`` prints (D8).
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
TOOLS = {"ruff", "mypy", "import-linter", "check-jsonschema"}  # they check the code and do not run with it


def requirements() -> dict[str, str]:
    """Lower bound by name, of all that the library and its tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [project["optional-dependencies"][name] for name in ("test", "outsourcing", "audit")]
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    found = dict(re.fullmatch(r"([\w.-]+)(?:>=([\w.]+))?,?.*", line).groups() for line in lines)
    return {name: low for name, low in found.items() if low and name not in TOOLS}


def report_of(which: str) -> Path:
    """Return the file in which the last run of an environment is written down."""
    return ROOT / f".venv-{which}" / "report.json"


def main() -> int:
    """Make the environment, run the tests, write the report; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["newest", "oldest"])
    parser.add_argument("tests", nargs="*", default=["tests"])
    arguments = parser.parse_args()
    folder = ROOT / f".venv-{arguments.which}"
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pinned = arguments.which == "oldest"
    wanted = [f"{name}=={low}" if pinned else name for name, low in requirements().items()]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", *wanted], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, check=True)
    versions = {entry["name"].lower(): entry["version"] for entry in json.loads(listed.stdout)}
    xml = folder / "report.xml"
    command = [python, "-m", "pytest", *arguments.tests, f"--junitxml={xml}"]
    command += ["--numprocesses=logical", "--maxprocesses=4"]
    # pyarrow 18 has a package of the name benchmarks too
    failed = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    ).returncode
    suite = next(ElementTree.parse(xml).iter("testsuite"))
    report = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": {name: versions[name.lower()] for name in requirements()},
        "tests": int(suite.get("tests", 0)) - int(suite.get("skipped", 0)),
        "failed": int(suite.get("failures", 0)) + int(suite.get("errors", 0)),
    }
    report_of(arguments.which).write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(json.dumps(report))
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
