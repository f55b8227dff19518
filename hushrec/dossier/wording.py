"""The sentences of a dossier, which follow from its facts, in words and numbers of its language."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from hushrec.dossier.form import filled, words

#: Odds above it are not written out.
_HUGE = 1e15


def number(value: float, lang: dict[str, Any], form: str = ",") -> str:
    """Format a number as Python does, with the language's decimal mark and thousands separator."""
    return format(value, form).translate(str.maketrans(lang["marks"]))


def amount(value: float, lang: dict[str, Any], digits: int = 4, *, bound: bool = True) -> str:
    """Format a positive number with significant digits and no exponent; a bound is rounded up."""
    if value <= 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(value)))
    exact = Decimal(value).scaleb(places)
    whole = math.ceil(exact * Decimal(1 - 1e-9)) if bound else round(exact)
    text = format(Decimal(whole).scaleb(-places), ",f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.translate(str.maketrans(lang["marks"]))


def percent(value: float, lang: dict[str, Any]) -> str:
    """Round up."""
    if value > 0.999:
        return str(lang["nearly"])
    digits = 1 if value < 0.1 or value > 0.985 else 0
    rounded = math.ceil(value * 100 * 10**digits - 1e-9) / 10**digits
    return str(lang["percent"].format(number(rounded, lang, f".{digits}f")))


def chance(value: float, lang: dict[str, Any]) -> str:
    """Write a small probability as one in so many, rounded up."""
    if value > 0.01:
        return percent(value, lang)
    if value <= 0:
        return "0"
    many = int(1 / value * (1 + 1e-9))
    many -= many % 10 ** max(0, len(str(many)) - 2)
    return str(lang["one_in"].format(number(many, lang)))


def times(odds: float | None, lang: dict[str, Any]) -> str:
    return str(lang["huge"]) if odds is None or odds > _HUGE else amount(odds, lang, 3)


def said(text: str, lang: dict[str, Any]) -> str:
    """Return a text of a model file or ledger in the language, if it is one that the library writes."""
    for pattern, other in lang["texts"].items():
        if (match := re.fullmatch(pattern, text)) is not None:
            numbers = str.maketrans(lang["marks"])
            groups = (group.translate(numbers) if group[:1].isdigit() else group for group in match.groups())
            return str(other.format(*groups))
    return text


def neighbours(dossier: dict[str, Any]) -> str:
    promise = dossier["promise"]
    return str(words(dossier["language"])["neighbours"][f"{promise['unit']} {promise['relation']}"])


def spelled(dossier: dict[str, Any], epsilon: float, delta: float) -> str:
    """Write a guarantee with its unit and relation in words."""
    lang = words(dossier["language"])
    cost = {"epsilon": amount(epsilon, lang, 6), "delta": amount(delta, lang, 6)}
    return str(lang["guarantee"].format(neighbours=neighbours(dossier), **cost))


def promised(dossier: dict[str, Any]) -> str:
    promise, week, lang = dossier["promise"], dossier["model"]["week"], words(dossier["language"])
    text = spelled(dossier, promise["epsilon"], promise["delta"])
    if week is None:
        return text
    season = {season["name"]: season for season in dossier["ledger"]["seasons"]}[week[0]]
    return season_words(season, lang["promised"], lang, promise=text)


def season_words(season: dict[str, Any], text: str, lang: dict[str, Any], **gaps: str) -> str:
    cost = {"most": amount(season["training_mu_squared"], lang), "decay": amount(season["decay"], lang)}
    return text.format(**season | cost, **gaps)


def capped(model: dict[str, Any], lang: dict[str, Any]) -> str:
    """Say how many ratings of a person count; a cap above the catalogue limits nothing."""
    limits = model["ratings_per_user"] < model["items"]
    gaps = {"cap": number(model["ratings_per_user"], lang), "items": number(model["items"], lang)}
    text: str = lang["cap"]["limits" if limits else "does not"]
    return text.format(**gaps)


def rows_of(model: dict[str, Any], lang: dict[str, Any]) -> str:
    low, high = (number(end, lang, "g") for end in model["rating_range"])
    return str(lang["likes"] if model["likes"] else lang["ratings"].format(low=low, high=high))


def limited(book: dict[str, Any]) -> str | None:
    """Return ``"open"`` without a budget, ``"open season"`` if open seasons have one, or None."""
    if book["budget"] is not None or book["closed"]:
        return None
    return "open season" if any(not season["closed"] for season in book["seasons"]) else "open"


def mechanisms(book: dict[str, Any], lang: dict[str, Any]) -> str:
    kinds = dict.fromkeys(row[5].partition("(")[0] for row in book["charges"] if row[2] in book["runs"])
    return ", ".join(said(kind, lang) for kind in kinds)


def worded(dossier: dict[str, Any]) -> dict[str, Any]:
    lang, model, book = words(dossier["language"]), dossier["model"], dossier["ledger"]
    unit, relation = dossier["promise"]["unit"], dossier["promise"]["relation"]
    last, so_far = dossier["learned"][-1], dossier["learned"][1]
    inexact = [lang["rounding"][part] for part in lang["rounding"] if not model[f"exact_{part}"]]
    servers = "no" if model["epsilon_of_both_servers"] is None else "yes"
    whom = neighbours(dossier)
    gaps = {
        "change": lang["change"][f"{unit} {relation}"],
        "of": lang["of"][last["of"]],
        "one": lang["one"][unit],
        "from_one": lang["from"][unit],
        "odds": times(last["odds"], lang),
        "delta": chance(last["delta"], lang),
        "public": ", ".join(said(source, lang) for source in model["public"]),
        "rounding": lang["and"].join(inexact),
        "cap": capped(model, lang),
        "promise": promised(dossier),
        "Neighbours": whom[:1].upper() + whom[1:],
        "nist": f"{lang['nist'][unit]}, {lang['nist'][relation]}",
        "mechanisms": mechanisms(book, lang),
        "arithmetic": lang["arithmetic"]["yes" if model["exact_arithmetic"] else "no"],
        "noise": lang["noise"]["yes" if model["exact_noise"] else "no"],
        "trust": lang["trust"][servers],
        "central": lang["central"][servers],
        "controller": dossier["declared"]["controller"],
        "purpose": dossier["declared"]["purpose"] or lang["undeclared"],
        "rows": rows_of(model, lang),
        "items": number(model["items"], lang),
        "unit": unit,
        "relation": relation,
        "runs": number(len({row[2] for row in book["charges"]}), lang),
        "together": spelled(dossier, so_far["epsilon"], so_far["delta"]),
    }
    holds = {
        "rating": unit == "rating",
        "rounding": bool(inexact),
        "season": model["week"] is not None,
        "donors": model["public_ratings"],
        "consent": model["public_ratings"] and dossier["consent"] is None,
        "servers": servers == "yes",
        limited(book): True,
    }

    def chosen(part: str) -> list[str]:
        return filled(lang[part] + [text for key, text in lang[f"{part}_if"].items() if holds.get(key)], gaps)

    criteria = [filled(criterion, gaps) for criterion in lang["criteria"]]
    if holds["donors"]:
        criteria = [[risk, f"{bound} {lang['donors']}", gap] for risk, bound, gap in criteria]
    return {
        "not_covered": chosen("not_covered"),
        "criteria": criteria,
        "deletion": chosen("deletion"),
        "law": [filled(paragraph, gaps) for paragraph in lang["law"]],
    }
