"""The site: every public name is on it, links lead somewhere, pages are current, blocks are run."""

import inspect
import os
import re
import time
from pathlib import Path

import pytest

import hushrec
from benchmarks import epsilon_page
from docs._ext import execute

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
# pages that a build writes are no part of the repository
PAGES = [
    page for page in PAGES if not re.search(r"docs/(project/|reference/(commands|settings))", page.as_posix())
]


def public_methods():
    for name in hushrec.__all__:
        thing = getattr(hushrec, name)
        if inspect.isclass(thing) and thing.__module__.startswith("hushrec"):
            for method, value in vars(thing).items():
                if not method.startswith("_") and (
                    callable(value) or isinstance(value, property | classmethod)
                ):
                    yield name, method, inspect.getdoc(getattr(thing, method))


@pytest.mark.parametrize("name", hushrec.__all__)
def test_every_public_name_is_described(name):
    assert (inspect.getdoc(getattr(hushrec, name)) or "").strip()


def test_every_public_method_is_described():
    assert [f"{name}.{method}" for name, method, text in public_methods() if not text] == []


def test_every_public_name_is_in_the_reference():
    pytest.importorskip("sphinx")
    from docs._ext import names, reference

    shown = [name for _, _, group in names.groups().values() for name in group]
    assert sorted(name for name in shown if "." not in name) == sorted(hushrec.__all__)
    assert len(set(shown)) == len(shown)
    page = reference.api_page("Data", "Words.", ["Ratings"])
    assert ".. autoclass:: hushrec.Ratings" in page


def anchors(page):
    """Anchors of the headings of a page, as the web view makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.M):
        plain = re.sub(r"[`*]|\[|\]\(.*?\)", "", heading).strip().lower()
        yield re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_files_and_headings_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for path, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)", text):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path} has no heading {anchor}"


def test_the_page_of_epsilon_is_what_its_command_prints():
    assert epsilon_page.table() in epsilon_page.PAGE.read_text()


def test_a_page_is_run_block_by_block():
    page = "```python\nn = 2\n```\n<!-- not run -->\n```bash\nexit 3\n```\n```python\nprint(n + 1)\n```\n"
    assert [printed for _, printed in execute.run_page(page)] == ["", "3\n"]
    assert execute.shown(page).endswith("```text\n3\n```\n")


@pytest.mark.parametrize("block", ["```bash\nexit 3\n```", "```python\n1 / 0\n```"])
def test_a_block_that_fails_is_found(block):
    with pytest.raises(RuntimeError, match="exit code 3|ZeroDivisionError"):
        execute.run_page(block + "\n")


@pytest.mark.skipif(os.name == "nt", reason="process groups are those of POSIX")
def test_what_a_page_starts_ends_with_it():
    (_, printed), *_ = execute.run_page("```bash\nsleep 600 > /dev/null 2>&1 &\necho $!\n```\n")
    for _ in range(500):
        try:
            os.kill(int(printed), 0)
            status = Path(f"/proc/{int(printed)}/stat").read_text()
        except OSError:  # gone, or a system without /proc, which we cannot ask more of
            return
        if status.rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    raise AssertionError("it still runs")


@pytest.mark.full
@pytest.mark.parametrize("page", sorted((DOCS / "start").glob("*.md")), ids=lambda page: page.stem)
def test_start_pages_run(page):
    execute.run_page(page.read_text())


def test_proofs_write_formulas_as_formulas():
    """No norm, root, sum or power of a proof stands in plain text or as code; tables of settings may."""
    formula = re.compile(r"[√‖ᵀ∈∇²⁴⁻]|\bsqrt\(|(?<![\w/])[a-zA-Z0-9]\^|[a-z)] <= ")
    for page in sorted((DOCS / "proofs").glob("*.md")):
        text = re.sub(r"```.*?```|\$\$.*?\$\$|\$[^$]*\$", "", page.read_text(), flags=re.S)
        assert [line for line in text.splitlines() if formula.search(line)] == [], page.name


def test_every_formula_is_mathml():
    latex = pytest.importorskip("docutils.utils.math.latex2mathml")
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
        blocks = re.findall(r"\$\$(.+?)\$\$", text, flags=re.S)
        inline = re.findall(
            r"(?<![\\\w$])\$(?!\s)([^$]+?)(?<!\s)\$(?!\d)", re.sub(r"\$\$.+?\$\$", "", text, flags=re.S)
        )
        for formula in blocks + inline:
            latex.tex2mathml(formula)


def test_words_that_readers_did_not_understand_are_gone():
    banned = ["mended constants", "room rules", "no different from none", "people of fainter tastes"]
    for path in [*PAGES, *(ROOT / "hushrec").rglob("*.py")]:
        text = " ".join(path.read_text(encoding="utf-8").split())
        assert [words for words in banned if words in text] == [], path


@pytest.mark.parametrize(
    "name",
    ["guides/planning", "understand/frontier", "papers/one-bit", "papers/frank-wolfe", "understand/trust"],
)
def test_a_page_of_results_begins_with_what_was_found_and_what_to_do(name):
    first = "\n".join((DOCS / f"{name}.md").read_text().splitlines()[:25])
    assert "**What was found" in first and "**What to do" in first
    headings = re.split(r"^## ", (DOCS / f"{name}.md").read_text(), flags=re.M)
    with_passes = [number for number, part in enumerate(headings) if re.search(r"^- PASS ", part, flags=re.M)]
    assert with_passes in ([], [len(headings) - 1])


def test_links_of_built_pages_are_followed(tmp_path):
    links = pytest.importorskip("docs._ext.links")
    (tmp_path / "a.html").write_text('<h1 id="top"></h1><a href="b.html#there">b</a><a href="#gone">x</a>')
    (tmp_path / "b.html").write_text('<p id="there"><img src="no.png"><a href="https://example.org/x">y</a>')
    assert list(links.broken(tmp_path)) == [("a.html", "#gone"), ("b.html", "no.png")]
