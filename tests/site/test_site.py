"""The site: every public name is on it, links lead somewhere, pages are current, blocks are run."""

import inspect
import re
from pathlib import Path

import pytest

import hushrec
from benchmarks import epsilon_page
from docs._ext import execute
from hushrec.evaluation import plots
from hushrec.registry import ESTIMATORS

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
    assert sorted(name for name in shown if "." not in name) == names.public_names()
    assert len(set(shown)) == len(shown)
    page = reference.api_page("Data", "Words.", ["Ratings"], {None})
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


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_is_in_the_browser_in_the_formulas_and_in_the_plots(name):
    module, mention = ESTIMATORS[name].__module__, f"`{name}`"
    served = re.search(r"SERVED = \[(.*?)\]", (ROOT / "web" / "src" / "section.ts").read_text())[1]
    if "papers" not in module and name not in ("both", "global-mean"):  # a pair, and a model without lists
        assert f'"{name}"' in served
    assert (
        mention in (DOCS / "reference" / "fold-in.md").read_text() or name == "one-bit"
    )  # for research on single ratings
    assert f'"{name}"' not in served or mention in (DOCS / "guides" / "device.md").read_text()
    assert not module.endswith("baselines") or name in plots._BASELINES


def test_the_page_of_epsilon_is_what_its_command_prints():
    assert epsilon_page.table() in epsilon_page.PAGE.read_text()


@pytest.mark.parametrize("block", ["```bash\nexit 3\n```", "```python\n1 / 0\n```"])
def test_a_block_that_fails_is_found(block):
    with pytest.raises(RuntimeError, match="exit code 3|ZeroDivisionError"):
        execute.run_page(block + "\n")


@pytest.mark.full
@pytest.mark.parametrize("page", sorted((DOCS / "start").glob("*.md")), ids=lambda page: page.stem)
def test_start_pages_run(page):
    execute.run_page(page.read_text())
