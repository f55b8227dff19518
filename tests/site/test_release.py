"""A release: one version, one address, templates and workflows that the host understands, links that hold."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hushrec
from benchmarks import true
from docs._ext import pages

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GITHUB = ROOT / ".github"
FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"]


@pytest.mark.parametrize(
    "schema, files",
    [
        ("github-workflows", sorted((GITHUB / "workflows").glob("*.yml"))),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_the_host_understands(schema, files):
    pytest.importorskip("check_jsonschema")
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_version():
    version = PROJECT["version"]
    assert hushrec.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{version}}}" in (ROOT / "docs" / "papers" / "cite.md").read_text()
    for name in ("package.json", "package-lock.json"):
        assert f'"version": "{version}"' in (ROOT / "web" / name).read_text()
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_every_sentence_of_make_trust_has_a_test():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    assert set(re.findall(r'mark\.true\("(\w+)"\)', "".join(texts))) == set(true.SENTENCES)


def test_one_address():
    """No page or template sends a reader to another repository than that of the metadata."""
    address = PROJECT["urls"]["Repository"]
    files = [ROOT / "CITATION.cff", *GITHUB.rglob("*.yml"), *ROOT.glob("*.md")]
    for path in files:
        for found in re.findall(r"https://github\.com/[\w./-]*hushrec[\w.-]*", path.read_text()):
            assert found.startswith(address), path


def test_links_of_the_long_description_lead_somewhere_from_anywhere():
    text = pages.absolute((ROOT / "README.md").read_text())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links and all(link.startswith(("https://", "#")) for link in links)
    start = f"{PROJECT['urls']['Repository']}/"
    for link in links:
        if link.startswith(start):
            kind, tag, path = link.removeprefix(start).split("#")[0].split("/", 2)
            assert kind in ("blob", "tree") and tag == f"v{PROJECT['version']}"
            assert (ROOT / path).is_dir() == (kind == "tree") and (ROOT / path).exists()
