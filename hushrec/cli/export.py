"""``hushrec export``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import show
from hushrec.cli.files import output_file, output_folder, page_folder
from hushrec.cli.items import Titled
from hushrec.cli.options import File, Force, Json
from hushrec.errors import InputError
from hushrec.serving.attributes import titled_page
from hushrec.serving.billboard import load
from hushrec.serving.modelfile import write_atomically


def export(
    model: str,
    /,
    *,
    web: Annotated[str | None, Parameter(metavar="DIR")] = None,
    out: File | None = None,
    int8: bool = False,
    titled: Titled = Titled(),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write MODEL anew for where it is used: a smaller file, or a site that any host of files can show.

    The site is a page whose visitors rate items and get lists in their own browser; nothing is sent.

      hushrec export model.hush --int8 --out small.hush
      hushrec export model.hush --web site/ --titles titles.csv

    Parameters
    ----------
    model
        A model file.
    web
        A folder for the page and the model.
    out
        A model file.
    int8
        Item factors of one byte with a scale an item.
    """
    if (web is None) == (out is None):
        raise InputError("Pass --web DIR for a site, or --out FILE for a model file.")
    if out is not None and titled.titles is not None:
        raise InputError("A model file holds no titles; pass --titles with --web.")
    billboard = load(model)
    if out is not None:
        target = output_file(out, (model,), force)
        billboard.save(target, int8=int8)
        written = [target]
    else:
        show.warn_of_publishing(billboard, model)
        page, folder = page_folder(), output_folder(str(web))
        folder.mkdir(exist_ok=True)
        attributes = titled.read(billboard.domain)
        titles = None if attributes is None else attributes.titles_json(billboard.domain)
        names = [
            "model.hush",
            *(["titles.json"] if titles else []),
            *sorted(path.name for path in page.iterdir() if path.is_file()),
        ]
        written = [output_file(str(folder / name), (model, titled.titles), force) for name in names]
        billboard.save(written[0], int8=int8)
        for target in written[1:]:
            content = (page / target.name).read_bytes() if target.name != "titles.json" else titles or b""
            write_atomically(target, [titled_page(content) if titles else content])
            target.chmod(0o644)
        written[0].chmod(0o644)
    sizes = {str(path): path.stat().st_size for path in written}
    lines = [f"{path}: {size:,} bytes" for path, size in sizes.items()]
    show.result(as_json, {"files": sizes}, f"Wrote {web or out}", *lines)
