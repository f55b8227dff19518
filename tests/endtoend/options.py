"""The private estimators and their documented options, as words of a command line."""

from __future__ import annotations

from typing import Any

Words = tuple[str, ...]


def _of(option: str, *values: str) -> list[Words]:
    """The planned or default value of a setting, and others."""
    return [(), *(("--set", f"{option}={value}") for value in values)]


_STEPS: dict[str, list[Words]] = {
    "eigenvector": _of("eigenvector", "oja", "power"),
    "iterations": _of("iterations", "3"),
    "center": _of("center", "user", "biases", "middle"),
    "residual clip": _of("residual_clip", "0.2"),
    "decay": _of("residual_clip_decay", "0.5"),
    "inner steps": _of("inner_steps", "2"),
    "block": _of("block", "3"),
    "sample": _of("max_ratings_per_user", "3"),
}
_ALS: dict[str, list[Words]] = {
    "factors": [
        (),
        ("--set", "rank=4"),
        ("--set", "features=false"),
        ("--set", "features=false", "--set", "rank=0"),
        ("--set", "features=false", "--set", "bias_rounds=0"),
    ],
    "iterations": _of("iterations", "0", "2"),
    "factor clip": _of("factor_clip", "0.001"),
    "user variance": _of("user_variance", "6"),
    "weight exponent": _of("weight_exponent", "0", "-1"),
}

#: Options by model, without the common ones.
OPTIONS: dict[str, dict[str, list[Words]]] = {
    "private-als": {**_ALS, "item features": [(), ("--item-features", "features.csv")]},
    "one-bit-user": {**_ALS, "threshold": _of("threshold", "3.5", "0.5")},
    "dpals": {
        "clipping": _of("clipping", "user"),
        "sampling": _of("sampling", "tail", "weights"),
        "center": _of("center", "level", "user"),
        "orthonormalize": [(), ("--set", "orthonormalize=true")],
        "unobserved weight": _of("unobserved_weight", "0.1"),
        "item fraction": _of("item_fraction", "0.5"),
        "sample": _of("max_ratings_per_user", "2"),
        "clip": _of("clip", "0.01"),
    },
    "private-frank-wolfe": {
        **_STEPS,
        "row clip": _of("row_clip", "0.3"),
        "nuclear norm": _of("nuclear_norm", "30", "1000"),
        "damping": _of("step_damping", "0.5"),
    },
    "private-svd": {
        "rank": _of("rank", "2"),
        "scale": _of("scale", "local"),
        "row clip": _of("row_clip", "0.2"),
        "center": _of("center", "biases", "middle"),
        "sample": _of("max_ratings_per_user", "3"),
    },
    "private-projected-gradient": {
        "iterations": _of("iterations", "2"),
        "row clip": _of("row_clip", "0.1"),
        "center": _of("center", "biases", "middle"),
        "step decay": _of("step_decay", "0.5"),
        "nuclear norm": _of("nuclear_norm", "30"),
    },
    "cleansed-svd": {
        "rank": _of("rank", "2", "12"),
        "prediction": _of("prediction", "neighbours"),
        "clamp": _of("residual_clamp", "0.02"),
        "sample": _of("max_ratings_per_user", "4"),
    },
    "private-eigenrec": {
        "rank": _of("rank", "0", "2"),
        "iterations": _of("iterations", "1"),
        "support": _of("support", "0.1"),
        "equalization": _of("equalization", "0"),
    },
    "both": {
        "like threshold": _of("like_threshold", "2", "4.5"),
        "share": _of("lists_share", "0.2"),
        "item features": [(), ("--item-features", "features.csv")],
    },
    "item-bias": {"clip": _of("clip", "1"), "regularization": _of("user_regularization", "0.1")},
    "global-mean": {},
    "popular": {},
}

#: What every command that trains takes.
GENERAL: dict[str, list[Any]] = {
    "epsilon": [("--epsilon", "1"), ("--epsilon", "20")],
    "relation": [(), ("--relation", "replace")],
    "users": [(), ("--users", "5"), ("--users", "100000")],
    "cap": [(), ("--max-ratings-per-user", "3")],
    "seed": [(), ("--seed", "7")],
    "json": [(), ("--json",)],
    "ledger": [(), ("--ledger", "mine.sqlite", "--dataset", "shop")],
}

#: Of the model that protects the value of a rating.
ONE_BIT: dict[str, list[Words]] = {
    "mechanism": _of("mechanism", "objective", "gradient", "output"),
    "solver": _of("solver", "dense"),
    "link": _of("link", "probit"),
    "offsets": [(), ("--set", "offsets=false")],
    "threshold": _of("threshold", "3.5"),
}


def words(choice: dict[str, Any]) -> list[str]:
    """Return the words of the chosen options."""
    return [word for value in choice.values() if isinstance(value, tuple) for word in value]
