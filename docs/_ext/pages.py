"""Pages of the repository's root on the site, and links that hold in both places.

Pages are written for the repository's web view: a link is a path to a file. On the site a link to another
page leads to that page, and a link to any other file to the repository. A link to what is not there is a
warning.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from hushrec.errors import SOURCE

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Pages of the root -> where they are on the site.
FROM_ROOT = {
    "PRIVACY.md": "project/privacy.md",
    "SECURITY.md": "project/security.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "README.md": "project/readme.md",
}
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_LOG = logging.getLogger(f"sphinx.{__name__}")


def in_repository(path: str) -> str:
    """The address of a file or folder of the repository, at this version."""
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{PROJECT['urls']['Repository']}/{kind}/v{PROJECT['version']}/{path}"


def absolute(text: str) -> str:
    """A page of the root with links that hold anywhere."""
    return _LINK.sub(lambda found: in_repository(found[1].rstrip("/")) + (found[2] or ""), text)


def relinked(text: str, page: Path, shown_at: Path) -> str:
    """The text of ``page`` with links that hold where the site shows it."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / found[1]))
        anchor = found[2] or ""
        if not target.exists() or not target.is_relative_to(ROOT):
            _LOG.warning("%s links to %s, which is not there", page, found[1])
            return found[0]
        path = target.relative_to(ROOT).as_posix()
        if path in FROM_ROOT:
            target = DOCS / FROM_ROOT[path]
        elif target.is_dir() and (target / "index.md").exists():
            target = target / "index.md"
        elif not target.is_relative_to(DOCS) or target.is_dir():
            return in_repository(path) + anchor
        return Path(os.path.relpath(target, shown_at.parent)).as_posix() + anchor

    return _LINK.sub(link, text)


def _write_from_root(app: Sphinx) -> None:
    for name, shown in FROM_ROOT.items():
        target = DOCS / shown
        text = relinked((ROOT / name).read_text(encoding="utf-8"), ROOT / name, target)
        write(target, text)


def write(target: Path, text: str) -> None:
    """Write a generated page; one that has not changed is not touched, so that it is not built again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")


def _relink(app: Sphinx, name: str, content: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    if page.suffix == ".md" and page.relative_to(DOCS).as_posix() not in FROM_ROOT.values():
        content[0] = relinked(content[0], page, page)
    if SOURCE != ".":  # hushrec is on a package index
        content[0] = re.sub(r"(pip install [\"']?)\.(?=[\s\[`])", rf"\1{SOURCE}", content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Before pages are read: write those of the root; as one is read: mend its links."""
    app.connect("builder-inited", _write_from_root)
    app.connect("source-read", _relink)
    return {"parallel_read_safe": True}
