"""``hushrec servers init``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from cyclopts import Parameter

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.cli.donated import Published
from hushrec.cli.files import output_file
from hushrec.cli.options import (
    Count,
    Force,
    Json,
    ModelName,
    Promise,
    Seed,
    Settings,
    Users,
    model_for,
    settings_given,
)
from hushrec.cli.tables import Declared
from hushrec.data import Domain
from hushrec.disk import content_of
from hushrec.errors import InputError
from hushrec.privacy import Budget
from hushrec.serving.modelfile import write_atomically
from hushrec.training import named

if TYPE_CHECKING:
    from hushrec.engines.two_servers.agreement import Agreement
    from hushrec.network.transport import Connection

_FORMAT = "hushrec agreement of two servers 1"
#: Most planned bytes of a node; fewest iterations and learned items planned for it.
_MOST_BYTES, _FEWEST, _LEAST_LEARNED = 10_000_000, 3, 3000


def servers_init(
    agreement: str,
    /,
    *,
    model: ModelName | None = None,
    n_users: Annotated[Users, Parameter(help="Number of users, for a model that is tuned to it.")]
    | None = None,
    settings: Settings = (),
    seed: Seed = 0,
    promise: Promise,
    declared: Declared = Declared(),
    implicit: bool = False,
    nodes_per_user: Count = 1,
    users_per_node: Count = 1,
    published: Published = Published(),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the AGREEMENT that two servers and all nodes train under: a file that people can read.

    Give the same file to both operators and to every node. The model is item-bias, popular, private-als,
    private-eigenrec or both. It is planned without an item x item matrix, and with fewer rounds, down to
    three, where a node would send more than 10 MB; --set iterations asks for more.

      hushrec servers init agreement.json --model private-als --users 6000 --set iterations=2 \\
                           --epsilon 5 --delta 1e-6 --rating-range 1 5 --catalogue items.txt

    Parameters
    ----------
    agreement
        File to write.
    implicit
        Every row of a node is a like.
    nodes_per_user
        Largest number of nodes that hold ratings of one user; noise grows with it.
    users_per_node
        Largest number of users of a node; choose it without counting rows. A device has one.
    """
    if declared.item_features is not None:
        raise InputError("Two servers train without item features; leave --item-features out.")
    budget, domain = promise.budget(), declared.domain(implicit)
    written = {
        "format": _FORMAT,
        "model": model_for(model, domain.likes, budget.private),
        "users": n_users,
        "settings": settings_given(settings),
        "seed": seed,
        **budget.promise,
        "items": list(domain.items),
        "rating_range": [domain.low, domain.high],
        "likes": domain.likes,
        "max_ratings_per_user": domain.max_ratings_per_user,
        "nodes_per_user": nodes_per_user,
        "users_per_node": users_per_node,
    }
    agreed = _made(written, published)
    target = output_file(agreement, (declared.catalogue, *published.files()), force)
    content = written | {"fingerprint": agreed.fingerprint}
    write_atomically(target, [json.dumps(content, indent=1).encode()])
    sizes = [8 * opened.size for _, opened in agreed.rehearsed()]
    grows = hasattr(agreed.estimator, "iterations") or hasattr(agreed.estimator, "lists")
    most = at_most(agreed.estimator, domain.n_items)[1] if grows else sum(sizes)
    words = {
        "agreement": str(target),
        "fingerprint": agreed.fingerprint,
        "promises": list(agreed.promises),
        "least_rounds": len(sizes),
        "least_bytes_a_node": sum(sizes),
        "most_bytes_a_node": most,
    }
    output.done(
        as_json,
        words,
        f"Agreed on {agreed.estimator.name}, in {target} (fingerprint {agreed.fingerprint[:16]}).",
        f"At least {plural(len(sizes), 'round')} and {sum(sizes) / 1e6:.2g} MB from a node that answers"
        f" all, and at most {most / 1e6:.2g} MB, where all is learned.",
        *agreed.promises,
        "Against both servers together nothing is promised.",
    )


def connected(url: str, plain_http: bool, ca: str | None, patience: float) -> Connection:
    from hushrec.network.transport import Connection

    if urlsplit(url).scheme == "http" and not (plain_http or is_loopback(urlsplit(url).hostname or "")):
        raise InputError(
            f"Anyone on the network path to {url} could read the messages; use https://, or pass "
            "--plain-http if a tunnel encrypts them."
        )
    return Connection(url, patience=patience, ca=ca)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def read_agreement(path: str, published: Published = Published()) -> Agreement:
    try:
        written = json.loads(content_of(path, "The agreement"))
        if written.get("format") == _FORMAT:
            agreed, known = _made(written, published), written["fingerprint"]
            if agreed.fingerprint == known:
                return agreed
            raise InputError(
                f"The agreement {path!r} was changed, has other --public-ratings, or was written by another"
                " version of hushrec; pass its public ratings, or write a new one with hushrec servers init."
            )
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise InputError(f"{path!r} is not an agreement; pass the file that hushrec servers init wrote.")


def _made(written: dict[str, Any], published: Published) -> Agreement:
    from hushrec.engines.two_servers.agreement import Agreement

    budget = Budget(*(written[word] for word in ("epsilon", "delta", "unit", "relation")))
    span = None if written["likes"] else tuple(written["rating_range"])
    domain = Domain(
        tuple(written["items"]),
        span,
        likes=written["likes"],
        max_ratings_per_user=written["max_ratings_per_user"],
    )
    name, n_users, settings = written["model"], written["users"], written["settings"]
    choice = named.check_run(name, budget, domain, n_users, settings)
    if choice.for_users is not None:
        raise InputError(f"{name} is tuned to the number of users: declare it, for example --users 6000.")
    estimator = small(choice.estimators[0], settings, domain.n_items)
    numbers = {name: written[name] for name in ("seed", "nodes_per_user", "users_per_node")}
    return Agreement(estimator=estimator, budget=budget, domain=domain, public=published.read(), **numbers)


def small(model: Any, settings: Mapping[str, Any], n_items: int, room: int = _MOST_BYTES) -> Any:
    """Return a planned model for which nodes send little; settings that are given are kept.

    It has fewer iterations, down to three, and lists then have fewer learned items.
    """
    if hasattr(model, "lists"):
        ratings = small(model.ratings, _of("ratings", settings), n_items, room // 4)
        room -= at_most(ratings, n_items)[1]
        return replace(
            model, ratings=ratings, lists=small(model.lists, _of("lists", settings), n_items, room)
        )
    tuning: Any = getattr(model, "tuning", None)
    if hasattr(model, "pairs") and "pairs" not in settings:
        model = replace(model, pairs=False)
    if tuning is not None and "iterations" not in settings:
        while model.iterations > _FEWEST and at_most(model, n_items)[1] > room:
            model = replace(model, iterations=model.iterations - 1)
        over = at_most(model, n_items)[1] - room
        if over > 0 and hasattr(tuning, "learned_items") and "learned_items" not in settings:
            learned = min(model.tuning.learned_items, n_items)
            kept = max(learned - math.ceil(over / (8 * model.iterations * model.rank)), _LEAST_LEARNED)
            model = replace(model, tuning=replace(model.tuning, learned_items=min(kept, learned)))
    return model


def _of(part: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    inside = ((name.partition("."), value) for name, value in settings.items())
    return {name: value for (of, _, name), value in inside if of == part and name}


def at_most(model: Any, n_items: int) -> tuple[int, int]:
    """Return rounds and bytes that a node sends where all is learned that may be."""
    if hasattr(model, "lists"):
        (of_ratings, sent), (of_lists, more) = (
            at_most(part, n_items) for part in (model.ratings, model.lists)
        )
        return of_ratings + of_lists, sent + more
    tuning, rank = model.tuning, model.rank
    steps = model.iterations if rank else 0
    if hasattr(tuning, "learned_items"):
        learned, width, rounds, words = min(tuning.learned_items, n_items), min(rank, n_items - 1), 1, n_items
        if model.pairs and rank:
            rounds, words = 2, words + learned * (learned + 1) // 2
        elif steps:  # each with item weights again; then the halves of likes
            rounds, words = rounds + steps + 1, words + steps * (n_items + learned * width)
            words += n_items + width * (width + 1)
    else:
        votes = min(steps, 6)  # residual variances
        rounds = 2 + model.bias_rounds + steps + votes  # level, then spreads and item weights
        words = n_items * (1 + model.bias_rounds + steps * rank) + 4
        words += votes + steps * (rank * (rank + 1) // 2 + 1)
    return rounds, 8 * words + 32 * rounds
