"""Links of the built pages that need no network: to pages, headings, pictures and scripts of the site."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

_LOG = logging.getLogger(__name__)


class _Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.append(value)


def broken(site: Path) -> Iterator[tuple[str, str]]:
    """Every page with a link of its own that leads nowhere."""
    site = site.resolve()
    found = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.relative_to(site).parts]
    pages = {path: _Page(path) for path in found}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor, there = unquote(parts.fragment), target.exists()
            if not there or (anchor and target in pages and anchor not in pages[target].anchors):
                yield path.relative_to(site).as_posix(), link


def _check(app: Sphinx, failed: Exception | None) -> None:
    if failed is None and app.builder.name == "html":
        for page, link in broken(Path(app.outdir)):
            _LOG.warning("%s links to %s, which leads nowhere", page, link)


def setup(app: Sphinx) -> dict[str, bool]:
    """After the build: follow every link."""
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True}
