"""A dossier as one page to print, from its JSON alone: no script, and nothing is loaded."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from string import Template
from typing import Any

from hushrec.dossier.bounds import exceeded, times
from hushrec.dossier.certifying import promised
from hushrec.dossier.form import canonical, file, words
from hushrec.privacy import total_mu
from hushrec.privacy.budget import Charge, composed_epsilon, guarantee
from hushrec.privacy.release import Release

_PAGE = """<!doctype html>
<html lang="en">
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


def render(dossier: dict[str, Any]) -> bytes:
    """Return a dossier as HTML, from its JSON alone."""
    book, promise, levels = dossier["ledger"], dossier["promise"], dossier["learned"]
    protects = promise["unit"], promise["relation"]
    texts = {
        "controller": dossier["controller"],
        "name": dossier["model"]["name"],
        "dataset": book["dataset"],
        "made": moment(dossier["made"]),
        "version": dossier["code"]["version"],
        "promise": promised(dossier),
        "together": guarantee(levels[1]["epsilon"], levels[1]["delta"], *protects),
        "plain": plain(dossier),
        "delta": f"{levels[1]['delta']:g}",
        "unit": promise["unit"],
        "relation": promise["relation"],
        "exceeded": f"{exceeded(levels[-1]):.2g}",
        "count": f"{book['head']['count']:,}",
        "head": book["head"]["hash"],
    }
    entry, code = dossier["signature"], dossier["code"]
    parts = {
        "trained": _trained(dossier),
        "released": _released(book),
        "runs": _runs(book, levels[1]["delta"]),
        "seasons": _seasons(book),
        "learned": _learned(levels),
        "attacked": _attacked(dossier["attacks"]),
        "not_covered": _bullets(dossier["not_covered"]),
        "deletion": _bullets(dossier["deletion"]),
        "code": facts({"Version": f"hushrec {code['version']}", "Digest of its files": code["sha256"]}),
        "checked": _checked(dossier["attacks"]),
        "questions": "\n".join(map(_questions, dossier["questions"])),
        "signature": facts(
            {
                "SHA-256 of the JSON": hashlib.sha256(canonical(dossier)).hexdigest(),
                "Public key": f"{entry['algorithm']} {entry['public_key']}",
                "Signature": entry["value"],
            }
        ),
    }
    filled = {key: escape(text) for key, text in texts.items()} | parts
    title = f"Privacy dossier: {dossier['controller']}, {book['dataset']}"
    return document(title, Template(file("page.html")).substitute(filled))


def document(title: str, body: str) -> bytes:
    """One page with its style in it."""
    return _PAGE.format(title=escape(title), style=file("page.css"), body=body).encode()


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table of texts; the columns `numbers` are aligned right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        marks = [' class="number"' if at in numbers else "" for at in range(len(row))]
        return "".join(f"<{tag}{mark}>{escape(each)}</{tag}>" for mark, each in zip(marks, row))

    lines = [f"<tr>{cells('th', head)}</tr>", *(f"<tr>{cells('td', row)}</tr>" for row in rows)]
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"


def facts(pairs: dict[str, str]) -> str:
    """Return terms with their descriptions."""
    lines = (f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in pairs.items())
    return "<dl>\n" + "\n".join(lines) + "\n</dl>"


def percent(value: float) -> str:
    """A percentage, rounded up."""
    if value > 0.999:
        return "nearly 100%"
    digits = 1 if value < 0.1 or value > 0.985 else 0
    return f"{math.ceil(value * 100 * 10**digits - 1e-9) / 10**digits:.{digits}f}%"


def moment(time: str) -> str:
    """Return a time in UTC to the second."""
    return time[:19].replace("T", " ")


def plain(dossier: dict[str, Any]) -> str:
    """Return the promise in plain words, with the people it does not cover."""
    level, promise = dossier["learned"][-1], dossier["promise"]
    sure, hardly, strict, loose = (percent(each) for _, each in level["belief"] + level["found"])
    suspicion = words()["suspicion"][f"{promise['unit']} {promise['relation']}"]
    gaps = {"sure": sure, "hardly": hardly, "strict": strict, "loose": loose, "suspicion": suspicion}
    said: str = words()["plain"]
    but = f" {words()['except']}" * dossier["model"]["public_ratings"]
    others = dossier["model"]["epsilon_of_both_servers"]
    against = ""
    if others is not None:
        protects = promise["delta"], promise["unit"], promise["relation"]
        either, both = guarantee(promise["epsilon"], *protects), guarantee(others, *protects)
        against = words()["servers"].format(either=either, both=both)
    return against + said.format(**gaps, of=level["of"], exceeded=exceeded(level)) + but


def _trained(dossier: dict[str, Any]) -> str:
    model, book, promise = dossier["model"], dossier["ledger"], dossier["promise"]
    (low, high), cap = model["rating_range"], model["ratings_per_user"]
    rows = "likes" if model["likes"] else f"ratings from {low:g} to {high:g}"
    settings = {key: f"{each:g}" if type(each) is float else each for key, each in model["settings"].items()}
    week = (
        ""
        if model["week"] is None
        else "; week {1} of season “{0}”, the first being week 0".format(*model["week"])
    )
    limit, closed = book["budget"], "closed: nothing more is trained on it" * book["closed"]
    budget = limit and guarantee(limit["epsilon"], limit["delta"], book["unit"], book["relation"])
    return facts(
        {
            "On whose behalf": f"{dossier['controller']} (declared)",
            "Model": f"{model['name']}{week}, trained by hushrec {model['trained_by']}",
            "Made from": f"{rows}, {model['items']:,} items, at most {cap:,} ratings of a person",
            "What is protected": words()["change"][f"{promise['unit']} {promise['relation']}"],
            "Budget of the data set": closed or budget or "none: further trainings add to the cost",
            "Taken to be public": ", ".join(model["public"]),
            "File": f"{model['bytes']:,} bytes, SHA-256 {model['sha256']}",
            **{f"Note {at}, as in the model file": note for at, note in enumerate(model["notes"], 1)},
            "Settings": ", ".join(f"{key} = {each}" for key, each in settings.items()) or "none",
        }
    )


def _released(book: dict[str, Any]) -> str:
    """Return a row a kind of release of this model's runs; those of one name are one row."""
    kinds: dict[tuple[str, str], list[Release]] = {}
    for row in book["charges"]:
        if row[2] in book["runs"]:
            release = Release.from_ledger(*(row[at] for at in (4, 5, 6, 10, 11)))
            stem = re.sub(r",? ?(week )?\d+(?=$|, week)", "", row[4]) or row[4]
            kinds.setdefault((stem, type(release.mechanism).__name__), []).append(release)
    head = ("release", "noise", "one unit moves it by", "noise (sd)", "mu together", "times")
    rows = [
        (
            *named,
            _range(each.sensitivity for each in releases),
            _range(each.noise_sd for each in releases),
            f"{total_mu(each.mu for each in releases):.3g}",
            str(len(releases)),
        )
        for named, releases in kinds.items()
    ]
    return table(head, rows, (2, 3, 4, 5))


def _range(values: Iterable[float]) -> str:
    ordered = [f"{each:.3g}" for each in sorted(values)]
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"


def _runs(book: dict[str, Any], delta: float) -> str:
    """Return a row a run, with what it and all before it cost together."""
    head, rows, so_far = ("time (UTC)", "run", "season", "charges", "mu so far", "epsilon so far"), [], []
    for run in dict.fromkeys(row[2] for row in book["charges"]):
        mine = [row for row in book["charges"] if row[2] == run]
        so_far += [Charge(*row[7:10]) for row in mine]
        mu, epsilon = total_mu(each.mu for each in so_far), composed_epsilon(so_far, delta)
        named = (
            "→ " * (run in book["runs"]) + moment(mine[0][3]),
            re.sub("([0-9a-f]{8})[0-9a-f]{8,}$", r"\1…", run),
            mine[0][12] or "—",
        )
        rows.append((*named, str(len(mine)), f"{mu:.4g}", f"{epsilon:.4g}"))
    return table(head, rows, (3, 4, 5))


def _seasons(book: dict[str, Any]) -> str:
    rows = [
        (
            each["name"],
            f"{each['begun']} of {each['weeks']}",
            "closed" if each["closed"] else "open",
            guarantee(each["epsilon"], each["delta"], book["unit"], book["relation"]),
        )
        for each in book["seasons"]
    ]
    head = ("season", "weeks trained", "state", "budget of all its weeks together")
    return f"<h3>Seasons: one budget for many weeks</h3>\n{table(head, rows)}" if rows else ""


def _learned(levels: Sequence[dict[str, Any]]) -> str:
    """Return a column a level."""
    before = [f"a suspicion of {part:.0%} becomes at most" for part, _ in levels[0]["belief"]]
    wrong = [
        f"a test that is wrong about {part:.0%} of others finds at most" for part, _ in levels[0]["found"]
    ]
    words = ("epsilon", "at delta", "mu", "odds change by at most", *before, *wrong)
    columns = [
        (
            f"{each['epsilon']:.4g}",
            f"{each['delta']:g}",
            "—" if each["mu"] is None or each["failure"] else f"{each['mu']:.4g}",
            f"× {times(each['odds'])}",
            *(percent(part) for _, part in each["belief"] + each["found"]),
        )
        for each in levels
    ]
    head = ("by what can be seen of", *(each["of"] for each in levels))
    return table(head, list(zip(words, *columns)), range(1, len(head)))


def _attacked(attacks: Sequence[dict[str, Any]]) -> str:
    rows = []
    for each in attacks:
        if "not_run" in each:
            rows.append((each["attack"], f"NOT RUN: {each['not_run']}", "", "", ""))
            continue
        control = each.get("without_privacy")
        margin = each.get("margin", 0.0)
        beside = (
            "" if control is None else f" To within {margin:.2f}. Without privacy it reached {control:.3f}."
        )
        above = each["reached"] - margin > each["claim"] or each.get("mu_reached", 0) > each.get(
            "mu_claim", 0
        )
        said = f"{words()['attacks'][each['attack']]}{beside} {each['users']:,} made-up people."
        figures = f"{each['reached']:.3f}", f"{each['claim']:.3f}"
        rows.append((each["attack"], said, *figures, "ABOVE THE CLAIM" if above else "below the claim"))
    if not rows:
        return '<p><span class="none">Not run.</span> No attack was asked for.</p>'
    return table(("attack", "what was done", "reached", "claim allows", "so"), rows, (2, 3))


def _checked(attacks: Sequence[dict[str, Any]]) -> str:
    rows = [(each, "passed") for each in words()["checked"]]
    rows += [(f"attack: {each['attack']}", "not run" if "not_run" in each else "run") for each in attacks]
    own = ("the library's own tests (proofs, planted bugs, attacks at length)", "not run for this page")
    return table(("check", "outcome"), [*rows, own])


def _questions(source: dict[str, Any]) -> str:
    lines = [f"<h3>{escape(source['of'])}</h3>"]
    for question, answer in source["ask"]:
        said = re.sub("^(not covered)", r'<span class="none">\1</span>', escape(answer), flags=re.I)
        lines += [f'<p class="question">{escape(question)}</p>', f'<p class="answer">{said}</p>']
    return "\n".join(lines)


def _bullets(texts: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{escape(text)}</li>" for text in texts) + "\n</ul>"
