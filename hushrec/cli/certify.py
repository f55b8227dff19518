"""``hushrec certify``."""

from __future__ import annotations

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
    key: File,
    out: Annotated[str, Parameter(metavar="FILE")],
    ledger: LedgerFile | None = None,
    dataset: Annotated[str, Parameter(metavar="NAME", show_default="the model's")] | None = None,
    attacks: Literal["quick", "none"] = "quick",
    model_card_out: Annotated[File, Parameter(name="--model-card")] | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a signed dossier on MODEL for a privacy officer: a page to print and a JSON file.

    It reads the model and its ledger, and no ratings; both files may be published.

      hushrec certify model.hush --controller "ACME GmbH" --key officer.pem --out dossier.html
      hushrec certify model.hush --ledger team.sqlite --controller "ACME GmbH" --key officer.pem \\
                      --attacks none --out dossier.json --model-card README.md

    Parameters
    ----------
    model
        A model file that was charged to a ledger.
    key
        An Ed25519 private key, from: openssl genpkey -algorithm ed25519 -out officer.pem
    out
        dossier.html (with dossier.json next to it), or dossier.json alone.
    dataset
        Name of the users in the ledger.
    attacks
        Attack the same configuration on generated data, for at most two minutes.
    model_card_out
        Write a model card for Hugging Face hubs too.
    """
    from hushrec import dossier as made  # the help does not need it

    page = Path(out)
    if page.suffix not in (".html", ".json"):
        raise InputError(
            f"{out!r} is not a dossier; give it a name that ends in .html or .json.", parameter="out"
        )
    inputs = (model, ledger, key, *(declared.consent or ()))
    targets = {str(page.with_suffix(".json")): made.canonical}
    if page.suffix == ".html":
        targets[out] = made.render
    if model_card_out in targets:
        raise InputError(f"{model_card_out!r} is the dossier; pass another name for the model card.")
    if model_card_out is not None:
        targets[model_card_out] = made.model_card
    places = {name: output_file(name, inputs, force) for name in targets}
    signer = made.private_key(key)
    book = Account(ledger=ledger).open()
    quick = attacks == "quick"
    if quick:
        output.note("Attacking the same configuration on generated data, for at most two minutes.")
    unsigned = made.certify(
        model,
        book,
        dataset=dataset,
        attacks=quick,
        **vars(declared),
    )
    dossier = made.sign(unsigned, signer)
    checks = made.check(made.canonical(dossier), model, ledger=book)
    if wrong := [check for check in checks if check.passed is False]:
        raise HushrecError(
            f"The dossier failed its own check ({wrong[0].words}), so nothing was written; run the command "
            "again when no training is running."
        )
    written: dict[str, Any] = {name: form(dossier) for name, form in targets.items()}
    for name, content in written.items():
        write_atomically(places[name], [content])
    signed_by = dossier["signatures"][0]["keyid"]
    output.done(
        as_json,
        {"files": list(targets), "public_key": signed_by, "learned": unsigned["learned"]},
        f"Wrote {', '.join(targets)}",
        f"Signed with key {signed_by}",
        *output.paragraph(made.plain(unsigned)),
        f"Anyone with the JSON and the model can check both: hushrec verify {next(iter(targets))} {model}",
    )
