"""A dossier as pages to print, from its signed JSON alone: no script, and nothing is loaded."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from hushrec.dossier.bounds import exception, of_a_user, valued
from hushrec.dossier.form import canonical, facts_of, file, words
from hushrec.dossier.wording import (
    amount,
    capped,
    chance,
    limited,
    neighbours,
    number,
    percent,
    promised,
    rows_of,
    said,
    season_words,
    spelled,
    times,
)
from hushrec.privacy import total_mu
from hushrec.privacy.budget import composed_epsilon
from hushrec.privacy.ledger_records import Row
from hushrec.privacy.release import Release
from hushrec.training.trainable import USER_COUNT, holds_user_count

_PAGE = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
#: Number of trainings and seasons on a page; earlier ones are one row, to fit six pages.
_LISTED = 6


def render(envelope: dict[str, Any]) -> bytes:
    """Return a dossier as HTML, from its JSON alone: one page to sign, then the details."""
    return _rendered(facts_of(envelope))


def paged(dossier: dict[str, Any]) -> str:
    """Return SHA-256 of the page on these facts."""
    read_back = json.loads(canonical(dossier))  # the order of keys is on the page
    return hashlib.sha256(_rendered(read_back)).hexdigest()


def _rendered(dossier: dict[str, Any]) -> bytes:
    lang = words(dossier["language"])
    bodies = {
        "trained": _trained(dossier, lang),
        "learned": _learned(dossier, lang),
        "attacks": _attacked(dossier["attacks"], lang),
        "deletion": bullets(dossier["deletion"]),
        "law": small(lang["law_note"]) + _law(dossier["law"]),
        "glossary": terms(lang["glossary"]),
        "code": _code(dossier, lang),
    }
    parts = [f'<div class="first">{_first(dossier, lang)}</div>']
    for at, (part, body) in enumerate(bodies.items(), 1):
        parts += [f"<h2>{at}. {escape(lang['heads'][part])}</h2>", body]
    title = f"{lang['kind']}: {dossier['declared']['controller']}, {dossier['ledger']['dataset']}"
    return document(title, "\n".join(parts), dossier["language"])


def document(title: str, body: str, language: str = "en") -> bytes:
    return _PAGE.format(title=escape(title), style=file("page.css"), body=body, language=language).encode()


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table of texts; columns ``numbers`` are aligned right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        marks = [' class="number"' if at in numbers else "" for at in range(len(row))]
        return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for mark, cell in zip(marks, row, strict=True))

    lines = [f"<tr>{cells('td', row)}</tr>" for row in rows]
    top = f"<thead><tr>{cells('th', head)}</tr></thead>"
    return f'<div class="wide"><table>\n{top}<tbody>\n' + "\n".join(lines) + "\n</tbody></table></div>"


def terms(pairs: dict[str, str]) -> str:
    lines = (f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in pairs.items())
    return "<dl>\n" + "\n".join(lines) + "\n</dl>"


def bullets(texts: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{escape(text)}</li>" for text in texts) + "\n</ul>"


def heading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def small(text: str) -> str:
    return f'<p class="small">{escape(text)}</p>'


def moment(time: str) -> str:
    return time[:19].replace("T", " ")


def plain(dossier: dict[str, Any]) -> str:
    """Return the promise in plain words, a line a paragraph."""
    level, promise, lang = dossier["learned"][-1], dossier["promise"], words(dossier["language"])
    sure, hardly, strict, loose = (percent(bound, lang) for _, bound in level["belief"] + level["found"])
    half, little = (lang["percent"].format(f"{before * 100:g}") for before, _ in level["belief"])
    of_values, value = valued(level, promise["relation"]), ""
    if of_values is not None:
        known, told = (percent(of_values[kind][0][1], lang) for kind in ("belief", "found"))
        value = lang["value"].format(half=half, known=known, told=told)
    text = lang["plain"].format(
        half=half,
        little=little,
        sure=sure,
        hardly=hardly,
        value=value,
        strict=strict,
        loose=loose,
        suspicion=lang["suspicion"][f"{promise['unit']} {promise['relation']}"],
        of=lang["of"][level["of"]],
        exceeded=_exception(level, promise["relation"], lang),
        delta=chance(level["delta"], lang),
    )
    others = dossier["model"]["epsilon_of_both_servers"]
    if others is not None:
        either, both = (spelled(dossier, cost, promise["delta"]) for cost in (promise["epsilon"], others))
        text = lang["servers"].format(either=either, both=both) + "\n" + text
    return text + f"\n{lang['except']}" * dossier["model"]["public_ratings"]


def _exception(level: dict[str, Any], relation: str, lang: dict[str, Any]) -> str:
    """Write the probability of an outcome after which a belief, also in a value, exceeds its bound."""
    of_values = valued(level, relation)
    return chance(max(exception(each) for each in (level, of_values) if each is not None), lang)


def _first(dossier: dict[str, Any], lang: dict[str, Any]) -> str:
    book, so_far = dossier["ledger"], dossier["learned"][1]
    gaps = {
        "sha256": dossier["model"]["sha256"],
        "dataset": book["dataset"],
        "made": moment(dossier["made"]),
        "version": dossier["code"]["version"],
        "promise": promised(dossier),
        "together": spelled(dossier, so_far["epsilon"], so_far["delta"]),
    }
    declared = {
        word: dossier["declared"][field] or lang["undeclared"] for field, word in lang["declared"].items()
    }
    promise, cost = (escape(lang[part].format(**gaps)) for part in ("promise", "cost"))
    said_plainly = "".join(f"<p>{escape(text)}</p>" for text in plain(dossier).split("\n"))
    rated = f"<p>{escape(lang['rated'])}</p>" * dossier["model"]["likes"]
    declarations = [
        f"<p>{escape(text)}</p>{lines}" + table((who, *lang["sign"]), [("", "", "")])
        for (text, who), lines in zip(lang["declarations"], ('<p class="line"></p>', ""), strict=True)
    ]
    return "\n".join(
        [
            f'<p class="kind">{escape(lang["kind"])}</p>',
            f"<h1>{escape(dossier['declared']['controller'])}</h1>",
            small(lang["made"].format(**gaps)),
            terms(declared),
            f'<div class="brief"><p><b>{promise}</b> {cost}</p>{said_plainly}{rated}</div>',
            f"<h2>{escape(lang['heads']['not_covered'])}</h2>",
            bullets(dossier["not_covered"]),
            f"<h2>{escape(lang['heads']['declaration'])}</h2>",
            *(each.replace("<table", '<table class="signed"') for each in declarations),
        ]
    )


def _trained(dossier: dict[str, Any], lang: dict[str, Any]) -> str:
    model, book, promise = dossier["model"], dossier["ledger"], dossier["promise"]
    week = "" if model["week"] is None else lang["week"].format(*model["week"])
    limit, name, items = book["budget"], lang["facts"], number(model["items"], lang)
    if limit is not None:
        budget = spelled(dossier, limit["epsilon"], limit["delta"])
    else:
        budget = lang["closed"] if book["closed"] else lang["no_budget"][limited(book)]
    protects = {"unit": promise["unit"], "relation": promise["relation"], "neighbours": neighbours(dossier)}
    facts = {
        name["model"]: lang["trained_by"].format(name=model["name"], week=week, version=model["trained_by"]),
        name["data"]: lang["data"].format(rows=rows_of(model, lang), items=items, cap=capped(model, lang)),
        name["protected"]: lang["protected"].format(**protects),
        name["budget"]: lang["closed"] if book["closed"] else budget,
        name["public"]: ", ".join(said(source, lang) for source in model["public"]),
        name["trust"]: lang["trust"]["no" if model["epsilon_of_both_servers"] is None else "yes"],
        name["noise"]: lang["noise"]["yes" if model["exact_noise"] else "no"],
        name["file"]: lang["bytes"].format(bytes=number(model["bytes"], lang), sha256=model["sha256"]),
        name["settings"]: _settings(dossier, lang),
        **{name["note"].format(at=at): said(note, lang) for at, note in enumerate(model["notes"], 1)},
    }
    if dossier["consent"] is not None:
        facts[name["consent"]] = lang["consent"].format(**dossier["consent"])
    heads = {part: heading(lang["heads"][part]) for part in ("released", "runs", "seasons")}
    parts = [terms(facts), heads["released"], _released(book, lang), heads["runs"], _runs(dossier, lang)]
    if book["seasons"]:
        parts += [heads["seasons"], _seasons(dossier, lang)]
    return "\n".join(parts)


def _settings(dossier: dict[str, Any], lang: dict[str, Any]) -> str:
    """A number of users that was released is marked as noisy."""
    book = dossier["ledger"]
    charges = [Row(*columns) for columns in book["charges"]]
    counted = any(row.label == USER_COUNT for row in charges if row.run in book["runs"])
    settings = [
        f"{key} = {_setting(value, lang)}" + lang["noisy"] * (counted and holds_user_count(key))
        for key, value in dossier["model"]["settings"].items()
        if value is not None
    ]
    return "; ".join(settings) or str(lang["none"])


def _setting(value: Any, lang: dict[str, Any]) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value, lang, "g" if isinstance(value, float) else ",")
    return str(lang["yes_no"].get(str(value), value))


def _released(book: dict[str, Any], lang: dict[str, Any]) -> str:
    """Return a row per kind of release of this model's runs."""
    kinds: dict[tuple[str, str], list[Release]] = {}
    for row in (Row(*columns) for columns in book["charges"]):
        if row.run in book["runs"]:
            release = row.release
            stem = re.sub(r",? ?(week )?\d+(?=$|, week)", "", row.label) or row.label
            label = ": ".join(said(part, lang) for part in stem.split(": "))
            kinds.setdefault((label, said(type(release.mechanism).__name__, lang)), []).append(release)
    rows = [
        (
            *named,
            _range((release.sensitivity for release in releases), lang),
            _range((release.noise_sd for release in releases), lang),
            amount(total_mu(release.mu for release in releases), lang, 3),
            number(len(releases), lang),
        )
        for named, releases in kinds.items()
    ]
    return table(lang["release"], rows, (2, 3, 4, 5))


def _range(values: Iterable[float], lang: dict[str, Any]) -> str:
    ordered = [amount(value, lang, 3, bound=False) for value in sorted(values)]
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]}–{ordered[-1]}"


def _runs(dossier: dict[str, Any], lang: dict[str, Any]) -> str:
    """Return a row per run, with all costs up to it; the earliest of many are one row."""
    book, delta = dossier["ledger"], dossier["learned"][1]["delta"]
    runs: dict[str, list[Any]] = {}
    for row in book["charges"]:
        runs.setdefault(row[2], []).append(row)
    rows, so_far = [], []
    for run, mine in runs.items():
        so_far += mine
        costs = of_a_user(book, so_far)
        mu, epsilon = total_mu(cost.mu for cost in costs), composed_epsilon(costs, delta)
        named = (
            "→ " * (run in book["runs"]) + moment(mine[0][3]),
            said(re.sub("([0-9a-f]{8})[0-9a-f]{8,}$", r"\1…", run), lang),
            mine[0][12] or "—",
        )
        rows.append((*named, number(len(mine), lang), amount(mu, lang), amount(epsilon, lang)))
    if early := rows[: max(0, len(rows) - _LISTED)]:
        charges = number(sum(len(mine) for mine in list(runs.values())[: len(early)]), lang)
        earlier = lang["earlier"].format(count=number(len(early), lang))
        rows = [(early[-1][0].removeprefix("→ "), earlier, "", charges) + early[-1][4:], *rows[len(early) :]]
    note = lang["runs_note"].format(
        delta=amount(delta, lang),
        neighbours=neighbours(dossier),
        count=number(book["head"]["count"], lang),
        head=book["head"]["hash"],
    )
    return table(lang["run"], rows, (3, 4, 5)) + small(note)


def _seasons(dossier: dict[str, Any], lang: dict[str, Any]) -> str:
    rows = [
        (
            season["name"],
            season_words(season, lang["weeks"], lang),
            lang["shut"] if season["closed"] else lang["open"],
            spelled(dossier, season["epsilon"], season["delta"]),
        )
        for season in dossier["ledger"]["seasons"][-_LISTED:]
    ]
    return table(lang["season_head"], rows)


def _learned(dossier: dict[str, Any], lang: dict[str, Any]) -> str:
    levels, name, relation = dossier["learned"], lang["learned"], dossier["promise"]["relation"]

    def rates(kind: str, text: str, many: int) -> list[str]:
        parts = (lang["percent"].format(f"{part * 100:g}") for part, _ in levels[0][kind][:many])
        return [name[text].format(part) for part in parts]

    lines = [*map(name.get, ("epsilon", "delta", "mu", "odds")), *rates("belief", "belief", 2)]
    lines += [*rates("found", "found", 2), name["exceeded"]]
    columns = []
    for level in levels:
        columns.append(
            [
                amount(level["epsilon"], lang),
                chance(level["delta"], lang),
                "—" if level["mu"] is None or level["failure"] else amount(level["mu"], lang),
                f"× {times(level['odds'], lang)}",
                *(percent(part, lang) for _, part in level["belief"] + level["found"]),
                _exception(level, relation, lang),
            ]
        )
        of_values = valued(level, relation)
        if of_values is not None:
            columns[-1] += [percent(of_values[kind][0][1], lang) for kind in ("belief", "found")]
    if len(columns[0]) > len(lines):
        lines += rates("belief", "value", 1) + rates("found", "told", 1)
    head = (lang["learned_head"], *(lang["of"][level["of"]] for level in levels))
    note = lang["learned_note"].format(neighbours=neighbours(dossier))
    bounds = table(head, list(zip(lines, *columns, strict=True)), range(1, len(head)))
    return bounds + small(note) + table(lang["criterion"], dossier["criteria"])


def _attacked(attacks: Sequence[dict[str, Any]], lang: dict[str, Any]) -> str:
    if not attacks:
        return f'<p class="none">{escape(lang["no_attacks"])}</p>'
    rows = []
    for attack in attacks:
        name = lang["attack_names"][attack["attack"]]
        if "not_run" in attack:
            error = lang["not_run_error"].format(attack["not_run"])
            why = lang["not_run"].get(attack["not_run"], error)
            rows.append((name, lang["attack_not_run"].format(why), "", "", ""))
            continue
        reached, claim, control, margin = (
            amount(attack.get(key, 0.0), lang, digits, bound=False)
            for key, digits in (("reached", 3), ("claim", 3), ("without_privacy", 3), ("margin", 1))
        )
        gaps = {"users": number(attack["users"], lang), "margin": margin, "control": control}
        done = lang["attacks"][attack["attack"]].format(**gaps)
        rows.append((name, done, reached, claim, lang["reading"][reading(attack)]))
    return table(lang["attack_head"], rows, (2, 3)) + small(lang["attacks_note"])


def reading(attack: dict[str, Any]) -> str:
    """Return whether an attack was ``"above"`` the claim, ``"below"`` it, or found ``"nothing"``."""
    least = attack["reached"] - attack.get("margin", 0.0)
    if least > attack["claim"] or attack.get("mu_reached", 0) > attack.get("mu_claim", 0):
        return "above"
    guessing = 0.5 if "margin" in attack else 0.0
    return "below" if least > guessing else "nothing"


def _law(paragraphs: Iterable[Sequence[str]]) -> str:
    """Return headings, which have no text, and terms."""
    parts: list[str] = []
    for word, text in paragraphs:
        parts.append(terms({word: text}) if text else heading(word))
    return "\n".join(parts).replace("\n</dl>\n<dl>", "")


def _code(dossier: dict[str, Any], lang: dict[str, Any]) -> str:
    facts = {lang["version"]: lang["version_of"].format(**dossier["code"]), lang["checked"]: lang["checks"]}
    return f"<p>{escape(lang['how'])}</p>{terms(facts)}"
