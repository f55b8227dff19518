"""``hushrec export``."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.files import output_file, output_folder, page_folder, write_table
from hushrec.cli.items import Titled
from hushrec.cli.options import File, Force, Json
from hushrec.cli.tables import Columns
from hushrec.errors import InputError
from hushrec.serving.attributes import page_with
from hushrec.serving.model import load
from hushrec.serving.modelfile import write_atomically


def export(
    model: str,
    /,
    *,
    web: Annotated[str | None, Parameter(metavar="DIR")] = None,
    out: File | None = None,
    vectors: File | None = None,
    int8: bool = False,
    titled: Titled = Titled(),
    columns: Columns | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write MODEL in another form: a smaller file, a site for any host, or vectors.

    Visitors of the site rate items and get lists in their own browser, which sends no data.

      hushrec export model.hush --int8 --out small.hush
      hushrec export model.hush --web site/ --titles titles.csv
      hushrec export model.hush --vectors items.parquet

    Parameters
    ----------
    model
        A model file.
    web
        Folder for the page and the model.
    out
        A model file.
    vectors
        Parquet table of item vectors, for an index of inner products (Model.query).
    int8
        Store item factors in one byte each.
    """
    if sum(form is not None for form in (web, out, vectors)) != 1:
        raise InputError("Pass --web DIR for a site, --out FILE for a model file, or --vectors FILE.")
    if vectors is not None and int8:
        raise InputError("Vectors are of float32; pass --int8 with --out or --web.")
    if web is None and titled.titles is not None:
        raise InputError("Model files and vectors hold no titles; pass --titles with --web.")
    trained = load(model)
    output.warn_of_publishing(trained, model)
    if out is not None:
        target = output_file(out, (model,), force)
        trained.save(target, int8=int8)
        written = [target]
    elif vectors is not None:
        if not vectors.lower().endswith((".parquet", ".pq")):
            raise InputError(f"Vectors are a Parquet table; give {vectors!r} a name that ends in .parquet.")
        written = [output_file(vectors, (model,), force)]
        table = trained.item_vectors()
        listed = pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), table.shape[1])
        write_table(pa.table({"item": trained.domain.item_column, "vector": listed}), written[0])
    else:
        attributes = titled.read(trained.domain, columns)
        page, folder = page_folder(), output_folder(str(web))
        folder.mkdir(exist_ok=True)
        titles = None if attributes is None else attributes.titles_json(trained.domain)
        names = [
            "model.hush",
            *(["titles.json"] if titles else []),
            *sorted(path.name for path in page.iterdir() if path.is_file()),
        ]
        written = [output_file(str(folder / name), (model, titled.titles), force) for name in names]
        trained.save(written[0], int8=int8)
        for target in written[1:]:
            content = (page / target.name).read_bytes() if target.name != "titles.json" else titles or b""
            write_atomically(target, [page_with(content, ["titles"] if titles else [])])
            target.chmod(0o644)
        written[0].chmod(0o644)
    sizes = {str(path): path.stat().st_size for path in written}
    lines = [f"  {size:>9,} bytes  {path}" for path, size in sizes.items()]
    output.done(as_json, {"files": sizes}, f"Wrote {web or out or vectors}", *lines)
