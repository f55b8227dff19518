"""The sentences of a dossier, which follow from its facts."""

from __future__ import annotations

from typing import Any

from hushrec.dossier.form import filled, words


def spelled(dossier: dict[str, Any], epsilon: float, delta: float) -> str:
    protects = {key: dossier["promise"][key] for key in ("unit", "relation")}
    text: str = words(dossier["language"])["guarantee"]
    return text.format(epsilon=epsilon, delta=delta, **protects)


def promised(dossier: dict[str, Any]) -> str:
    promise, week = dossier["promise"], dossier["model"]["week"]
    text = spelled(dossier, promise["epsilon"], promise["delta"])
    if week is None:
        return text
    season = {season["name"]: season for season in dossier["ledger"]["seasons"]}[week[0]]
    return season_words(season, words(dossier["language"])["promised"]).format(**season, promise=text)


def season_words(season: dict[str, Any], texts: dict[str, str]) -> str:
    return texts["lifetime" if season["lifetime"] else "season"]


def capped(model: dict[str, Any], lang: dict[str, Any]) -> str:
    """Say how many ratings of a person count; a cap above the catalogue limits nothing."""
    limits = model["ratings_per_user"] < model["items"]
    gaps = {"cap": f"{model['ratings_per_user']:,}", "items": f"{model['items']:,}"}
    text: str = lang["cap"]["limits" if limits else "does not"]
    return text.format(**gaps)


def worded(dossier: dict[str, Any]) -> dict[str, Any]:
    lang, model, book = words(dossier["language"]), dossier["model"], dossier["ledger"]
    unit, relation = dossier["promise"]["unit"], dossier["promise"]["relation"]
    last = dossier["learned"][-1]
    inexact = [lang["rounding"][part] for part in lang["rounding"] if not model[f"exact_{part}"]]
    gaps = {
        "change": lang["change"][f"{unit} {relation}"],
        "of": lang["of"][last["of"]],
        "one": lang["one"][unit],
        "from_one": lang["from"][unit],
        "odds": times(last["odds"], lang),
        "delta": f"{last['delta']:g}",
        "public": ", ".join(lang["public"].get(source, source) for source in model["public"]),
        "rounding": lang["and"].join(inexact),
        "cap": capped(model, lang),
    }
    holds = {
        "rating": unit == "rating",
        "rounding": bool(inexact),
        "season": model["week"] is not None,
        "lifetime": dossier["learned"][0]["of"] == "lifetime",
        "donors": model["public_ratings"],
        "consent": model["public_ratings"] and dossier["consent"] is None,
        "servers": model["epsilon_of_both_servers"] is not None,
        "open": book["budget"] is None and not book["closed"],
    }

    def chosen(part: str) -> list[str]:
        return filled(lang[part] + [text for key, text in lang[f"{part}_if"].items() if holds[key]], gaps)

    criteria = [filled(criterion, gaps) for criterion in lang["criteria"]]
    if holds["donors"]:
        criteria = [[risk, f"{bound} {lang['donors']}", gap] for risk, bound, gap in criteria]
    return {
        "not_covered": chosen("not_covered"),
        "criteria": criteria,
        "deletion": chosen("deletion"),
        "law": [filled(paragraph, gaps) for paragraph in lang["law"]],
    }


def times(odds: float | None, lang: dict[str, Any]) -> str:
    if odds is None:
        return str(lang["huge"])
    return f"{odds:.3g}" if odds < 1000 else f"{odds:,.0f}" if odds < 1e6 else f"{odds:.1e}"
