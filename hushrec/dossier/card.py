"""A model card in the format of Hugging Face hubs, from the same facts as the dossier."""

from __future__ import annotations

import json
from typing import Any

from hushrec.dossier.form import facts_of, words
from hushrec.dossier.page import plain
from hushrec.dossier.wording import capped, promised
from hushrec.notebook import markdown


def model_card(envelope: dict[str, Any]) -> bytes:
    """Return a README.md: metadata in YAML, and a description in Markdown.

    Parameters
    ----------
    envelope : dict
        From `sign` or `unsigned`.

    Examples
    --------
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), ledger=book, dataset="shop")
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> model.save("model.hush")
    >>> facts = hushrec.dossier.certify("model.hush", book, controller="ACME GmbH", attacks=False)
    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> dossier = hushrec.dossier.sign(facts, Ed25519PrivateKey.generate())
    >>> hushrec.dossier.model_card(dossier).decode().splitlines()[1]
    'library_name: "hushrec"'
    """
    dossier = facts_of(envelope)
    model, book, promise = dossier["model"], dossier["ledger"], dossier["promise"]
    low, high = model["rating_range"]
    rows = "likes" if model["likes"] else f"ratings from {low:g} to {high:g}"
    metadata = {
        "library_name": "hushrec",
        "tags": ["recommender-systems", "collaborative-filtering", "differential-privacy", model["name"]],
        "differential_privacy": {key: promise[key] for key in ("epsilon", "delta", "unit", "relation")},
    }
    # any JSON text is YAML
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in metadata.items()), "---"]
    lines += [
        f"# {markdown(model['name'])}, for {markdown(dossier['declared']['controller'])}",
        f"A recommender that was trained with [hushrec](https://github.com/hushrec/hushrec) on behalf of"
        f" {markdown(dossier['declared']['controller'])}, on {rows} of {model['items']:,} items.",
        "",
        "## Use",
        "```python",
        "import hushrec",
        "",
        'model = hushrec.load("model.hush")',
        "model.recommend({ITEM: RATING}, n=10)      # a user's own ratings, without privacy cost",
        "```",
        "",
        "## Privacy",
        f"Differential privacy: **{markdown(promised(dossier))}**.",
        markdown(plain(dossier)),
        "",
        "| what | value |",
        "|---|---|",
        f"| trainings of this data set in this ledger | {len({row[2] for row in book['charges']})} |",
        f"| head of the ledger's chain | `{book['head']['hash']}` |",
        f"| SHA-256 of the model file | `{model['sha256']}` |",
        f"| SHA-256 of the dossier's page | `{dossier['page']}` |",
        "",
        "## Not covered",
        *(f"- {markdown(limit)}" for limit in dossier["not_covered"]),
        "",
        "## Training",
        f"Settings: {markdown(json.dumps(model['settings']))}. {capped(model, words())} Trained by hushrec"
        f" {markdown(model['trained_by'])}. The dossier has every charge.",
        "",
    ]
    return "\n".join(lines).encode()
