"""A model as JSON and as text: its taste and its promise."""

from __future__ import annotations

import re
import shlex
from inspect import getdoc
from pathlib import Path
from typing import Any

from hushrec.checks import plural, settings_of
from hushrec.cli import output
from hushrec.data import Domain
from hushrec.evaluation.baselines import baselines, planned_noise, released, released_weights
from hushrec.evaluation.measured import public_decides
from hushrec.evaluation.taste import Taste, taste
from hushrec.notebook import cut
from hushrec.privacy import Budget
from hushrec.serving.attributes import Attributes
from hushrec.serving.model import Model
from hushrec.serving.recommend import Algorithm
from hushrec.training import run
from hushrec.training.trainable import USER_COUNT, holds_user_count

#: Number of items that `explain` names per score, and the smallest move that it prints.
_REASONS, _SHOWN_MOVE = 3, 0.0005
#: Agreement with released values below which it is the printed reason for the weight 0.
_UNLIKE = 0.5
#: Columns of a title on a terminal.
_TITLE = 40


def about(trained: Model, releases: bool = False) -> str:
    domain = trained.domain
    rows = "likes" if domain.likes else f"ratings from {domain.low:g} to {domain.high:g}"
    rows = f"{plural(domain.n_items, 'item')}, {rows}, at most {domain.max_ratings_per_user:,} per user"
    learned = taste_of(trained).text(), advice(trained), judged(trained)
    lines = filter(None, learned)
    return "\n".join([f"Domain:     {rows}", *lines, "", trained.privacy.text(not releases)])


def advice(trained: Model) -> str:
    lister = trained.lists or trained
    n_users = lister.estimator.user_count
    if taste_of(trained).directions != 0 or lister.has_pairs or lister.parts or not n_users:
        return ""
    return public_decides(n_users, trained.domain.n_items, trained.privacy.budget.epsilon)


def judged(trained: Model) -> str:
    """Return the verdict of donors on the public model of ratings."""
    if (verdict := trained.judged) is None:
        return ""
    weight = f"{verdict['weight']:.0%}"
    if not verdict["donors"]:
        alike = f"{verdict['agreement']:.0%}"
        return f"Public ratings: weight {weight}. Released biases agree with them by {alike}."
    figures = [verdict[model]["value"] for model in ("private", "public", "together")]
    donors = plural(verdict["donors"], "donor")
    if any(figure is None for figure in figures):
        return f"Public ratings: weight 0%, because {donors} have too few ratings to judge them."
    private, public, together = (f"{figure:.3f}" for figure in figures)
    start = f"Public ratings: RMSE of {donors} is {private} with the private model and {public} with"
    if verdict["weight"]:
        return f"{start} the public one. Combined it is {together}, with weight {weight} for the public one."
    why = "donors rate other items" if verdict["agreement"] < _UNLIKE else "it does not help"
    return f"{start} the public one, which has weight 0% because {why}."


def trained(trained: Model, target: Path, verb: str, as_json: bool, rows: bool = True) -> None:
    name = shlex.quote(str(target))
    more = [f"Next: hushrec recommend {name} RATINGS --user ID; hushrec report {name}"]
    if rows and not counted(trained):
        more.append("Run hushrec check to see which rows were used. Training does not report that.")
    payload = {"file": str(target), **described(trained)}
    first = f"{verb} {trained.estimator.name} and wrote {target}"
    output.done(as_json, payload, first, about(trained), *more)


def popularity_of(trained: Model) -> str:
    if "popularity" in baselines(trained):
        return "released"
    return "not released" if released_weights(trained) is None else "not kept"


def held_against(trained: Model) -> tuple[dict[str, Any], str]:
    popularity, means = popularity_of(trained), "user means" in baselines(trained)
    weights, planned_sd = released_weights(trained), planned_noise(trained)
    released_sd = weights.noise_sd if weights is not None and popularity == "released" else None
    facts = {
        "user_means": "released" if means else "not released",
        "popularity": popularity,
        "popularity_noise_sd": released_sd,
        "popular_noise_sd": planned_sd,
    }
    words = (
        "The command hushrec evaluate compares it, without privacy cost, with users' own means"
        f" ({facts['user_means']}) and item popularity ({popularity}), computed from its own released values."
    )
    if planned_sd is not None:
        first = "" if released_sd is None else f" Item popularity has noise of sd {released_sd:.3g}."
        words += f"{first} The model popular with the whole budget would have noise of sd {planned_sd:.3g}."
    return facts, words


def summary(cls: type[Any]) -> str:
    return plain((getdoc(cls) or "").partition("\n\n")[0])


def plain(text: str) -> str:
    """Return the text of a docstring without its markup."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``", "")
    return " ".join(re.sub(r"\bNone\b", "none", text).split())


def taste_of(trained: Model) -> Taste:
    return taste(trained, trained.privacy.budget, trained.privacy.ledger)


def settings_line(estimator: Algorithm, noisy_count: bool = False) -> str:
    noisy = " (released with noise)" * noisy_count
    settings = ", ".join(
        (f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}")
        + noisy * holds_user_count(name)
        for name, value in settings_of(estimator).items()
    )
    return f"Settings:   {settings or 'none'}"


def counted(trained: Model) -> bool:
    return released(trained, USER_COUNT) is not None


def described(trained: Model) -> dict[str, Any]:
    domain = trained.domain
    return {
        "model": trained.estimator.name,
        "settings": settings_of(trained.estimator),
        "n_users_is_noisy": counted(trained),
        "n_items": domain.n_items,
        "rating_range": [domain.low, domain.high],
        "likes": domain.likes,
        "max_ratings_per_user": domain.max_ratings_per_user,
        "taste": taste_of(trained).to_dict(),
        "public_ratings": None if trained.judged is None else dict(trained.judged),
        "privacy": trained.privacy.to_dict(),
    }


def warn_of_the_number_of_users(trained: Model) -> None:
    count, number = released(trained, USER_COUNT), trained.estimator.user_count
    if number is not None and count is not None and not run.exceeds_noise(number, count.noise_sd):
        output.note(
            f"Warning: the released number of users, {number:,}, is indistinguishable from 0; run hushrec"
            " check to see which rows were used."
        )


def warn_of_delta(budget: Budget, n_users: int | None) -> None:
    if text := run.large_delta(budget, n_users):
        output.note(f"Warning: {text}")


def recommendations(
    user: str, known: bool, skipped: int, rows: list[dict[str, Any]], trained: Model, as_json: bool
) -> None:
    domain, taste = trained.domain, taste_of(trained)
    which = "likes" if domain.likes else f"ratings from {domain.low:g} to {domain.high:g}"
    there = rows[0] if rows else ("rank", "item", "score")
    order = ("rank", "item", "title", "new", "score", "rating", "base", "because")
    keys = [key for key in order if key in there]
    items = [{key: row[key] for key in keys} for row in rows]
    what = (
        "" if known else f", who has no {which} of known items in the history. This is the list for new users"
    )
    shown = [key for key in keys if key != "base"]
    cells = [[cell(entry[key], key) for key in shown] for entry in items]
    left = {at for at, key in enumerate(shown) if key in ("item", "title", "new", "because")}
    listed = output.table([shown, *cells], left=left) if cells else "No item is left for this list."
    payload = {"user": user, "known": known, "skipped": skipped, "items": items, "taste": taste.to_dict()}
    rating = "; rating is what the model predicts" if "rating" in keys else ""
    about = f"The higher the score, the better the match{rating}."
    about += " The list is computed from this user's own ratings." if known else ""
    if skipped:
        about += f" Skipped {plural(skipped, 'item')} of this user, which the model's catalogue lacks."
    output.result(
        as_json,
        payload,
        f"For user {user} alone{what}",
        listed,
        about,
        *output.paragraph(taste.text(advice=False)),
    )


def cell(value: Any, name: str) -> str:
    if name == "title":
        return cut(" ".join((value or "").split()), _TITLE)
    if isinstance(value, list):
        most = [reason for reason in value if abs(reason["moved"]) >= _SHOWN_MOVE][:_REASONS]
        named = [(cell(reason.get("title"), "title") or reason["item"], reason["moved"]) for reason in most]
        moved = [f"{title} {move:+.3f}" for title, move in named]
        return ", ".join(moved) or "no item of this user"
    if isinstance(value, bool):
        return "new" if value else ""
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


def name(entries: list[dict[str, Any]], domain: Domain, titled: Attributes | None) -> None:
    titles = [] if titled is None else titled.titles or []
    for entry in entries if titles else ():
        entry["title"] = titles[domain.position(entry["item"])]
