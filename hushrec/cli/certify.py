"""``hushrec certify``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.files import output_file
from hushrec.cli.options import Account, File, Force, Json, LedgerFile
from hushrec.errors import HushrecError, InputError
from hushrec.serving.modelfile import write_atomically


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Stated:
    """Statements of the controller, printed unchanged.

    Parameters
    ----------
    controller
        Who is responsible for the training.
    purpose
        Purpose of the lists.
    period
        Period of the ratings.
    contact
        Contact for privacy questions.
    review
        Date of the next review.
    consent
        Three files: the text that donors agreed to, the list of donors, and a secret key of at least 32
        bytes. The dossier holds digests of both.
    language
        Language of the page.
    """

    controller: Annotated[str, Parameter(metavar="NAME")]
    purpose: Annotated[str, Parameter(metavar="TEXT")] | None = None
    period: Annotated[str, Parameter(metavar="TEXT")] | None = None
    contact: Annotated[str, Parameter(metavar="TEXT")] | None = None
    review: Annotated[str, Parameter(metavar="DATE")] | None = None
    consent: Annotated[tuple[str, str, str], Parameter(metavar="FILES")] | None = None
    language: Literal["en", "de"] = "en"


def certify(
    model: str,
    /,
    *,
    declared: Stated,
    out: Annotated[str, Parameter(metavar="PAGE")],
    ledger: LedgerFile | None = None,
    dataset: Annotated[str, Parameter(metavar="NAME", show_default="the model's")] | None = None,
    attacks: Literal["quick", "none"] = "quick",
    model_card_out: Annotated[File, Parameter(name="--model-card")] | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a dossier on MODEL for a privacy officer: a page to read, and a file to sign.

    It reads the model and its ledger, no ratings and no private key; all files may be published.

      hushrec certify model.hush --controller "ACME GmbH" --out dossier.html
      hushrec certify model.hush --ledger team.sqlite --controller "ACME GmbH" --language de \\
                      --out dossier.html --model-card README.md

    Parameters
    ----------
    model
        A model file that was charged to a ledger.
    out
        File dossier.html; dossier.tosign is written next to it.
    dataset
        Name of the users in the ledger.
    attacks
        Attack the same configuration on generated data, for at most two minutes.
    model_card_out
        Write a model card for Hugging Face hubs too.
    """
    from hushrec import dossier as made  # the help does not need it

    page = Path(out)
    if page.suffix != ".html":
        raise InputError(f"{out!r} is not a page; give it a name that ends in .html.", parameter="out")
    facts_out = str(page.with_suffix(".tosign"))
    targets = {out: made.render, facts_out: made.to_sign}
    if model_card_out in targets:
        raise InputError(f"{model_card_out!r} is the dossier; pass another name for the model card.")
    if model_card_out is not None:
        targets[model_card_out] = made.model_card
    inputs = (model, ledger, *(declared.consent or ()))
    places = {name: output_file(name, inputs, force) for name in targets}
    book = Account(ledger=ledger).open()
    quick = attacks == "quick"
    if quick:
        output.note("Attacking the same configuration on generated data, for at most two minutes.")
    facts = made.certify(model, book, dataset=dataset, attacks=quick, **vars(declared))
    envelope = made.unsigned(facts)
    written: dict[str, Any] = {name: form(envelope) for name, form in targets.items()}
    checks = made.check(written[facts_out], model, page=written[out], ledger=book)
    if wrong := [check for check in checks if check.passed is False]:
        raise HushrecError(
            f"The dossier failed its own check ({wrong[0].words}), so nothing was written; run the command "
            "again when no training is running."
        )
    for name, content in written.items():
        write_atomically(places[name], [content])
    names = (facts_out, model, out, str(page.with_suffix(".sig")))
    facts_name, model_name, page_name, signature = map(shlex.quote, names)
    output.done(
        as_json,
        {"files": list(targets), "learned": facts["learned"]},
        f"Wrote {', '.join(targets)}. Nobody has signed it yet.",
        *output.paragraph(made.plain(facts)),
        "",
        "The officer checks the page and signs it with their own key:",
        f"  hushrec verify {facts_name} {model_name} --page {page_name}",
        f"  openssl pkeyutl -sign -rawin -inkey officer.pem -in {facts_name} -out {signature}",
        "Then attach the signature:",
        f"  hushrec sign {facts_name} {signature} --public-key officer.pub.pem",
    )
