"""D8: every dependency has both bounds, is installed within them, and can be imported."""

import ast
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = [
    *PROJECT["dependencies"],
    *(line for lines in PROJECT["optional-dependencies"].values() for line in lines if "hushrec" not in line),
]
#: Every environment comes with some setuptools.
RELEASE = PROJECT["optional-dependencies"]["release"]
MODULES = {"pytest-xdist": "xdist", "python-flint": "flint", "import-linter": "importlinter"}
MODULES |= {"pytrec-eval-terrier": "pytrec_eval", "mlflow-skinny": "mlflow", "faiss-cpu": "faiss"}
MODULES |= {"cyclonedx-bom": "cyclonedx_py"}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@pytest.mark.parametrize("line", LINES)
def test_bounds(line: str, record_property) -> None:
    bounds = re.fullmatch(r"([\w-]+)>=([\d.]+),<(\d+)(?:; .*)?", line)
    assert bounds, f"{line} needs a lower bound and the next major version as its upper one"
    name, low, high = bounds.groups()
    if line in RELEASE and importlib.util.find_spec("twine") is None:
        pytest.skip("a release installs its own")
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        assert line not in PROJECT["dependencies"]
        pytest.skip(f"{name} is not installed")
    importlib.import_module(MODULES.get(name, name.replace("-", "_")))
    record_property("imported", 1)
    assert numbers(version) >= numbers(low)
    record_property("within bounds", int(numbers(version) < (int(high),)))


def test_the_lock_has_what_development_needs_within_the_bounds() -> None:
    lines = (Path(__file__).parents[2] / "requirements-dev.lock").read_text(encoding="utf-8").split()
    locked = dict(line.lower().replace("_", "-").split("==") for line in lines)
    bounds = [re.fullmatch(r"([\w-]+)>=([\d.]+),<(\d+)(?:; .*)?", line).groups() for line in LINES]
    assert {name for name, _, _ in bounds} - set(locked) <= {"lenskit"}  # it asks for an older pandas
    for name, low, high in bounds:
        assert name not in locked or numbers(low) <= numbers(locked[name]) < (int(high),), name


def test_every_package_that_the_code_imports_is_declared() -> None:
    """Killed: a package that comes with another one, until it does not."""
    root = Path(__file__).parents[2]
    imported = set()
    for path in (root / "hushrec").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            imported |= {name.partition(".")[0] for name in names}
    names = [re.split(">=", line)[0] for line in LINES]
    declared = {MODULES.get(name, name.replace("-", "_")) for name in names} | {"hushrec"}
    assert imported - set(sys.stdlib_module_names) <= declared
