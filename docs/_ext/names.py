"""What the reference shows: public names and documented submodules' names by what they are for."""

import ast
import importlib
import inspect
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Title, introduction and names of each page; other names get a separate page.
GROUPS = {
    "data": (
        "Ratings and their domain",
        "Declared domains, ratings, and splits.",
        [
            "Domain",
            "Ratings",
            "split_ratings",
            "split_by_time",
            "leave_k_out",
            "data.leave_last_out",
            "strong_generalization",
            "data.sample_per_user",
            "realistic",
            "data.lifelike",
        ],
    ),
    "models": (
        "Private models",
        "Estimators with privacy. Each is a frozen dataclass: settings are its fields, ``planned``"
        " chooses them from public quantities, ``fit`` trains and returns a :class:`hushrec.Model`.",
        [
            "train",
            "Both",
            "PrivateALS",
            "PrivateEigenRec",
            "ItemBias",
            "models.GlobalMean",
            "Popular",
            "models.UserLevelOneBit",
        ],
    ),
    "references": (
        "Models without privacy",
        "References to compare with. They are stamped NOT PRIVATE.",
        ["ALS", "EASE", "papers.FrankWolfe", "papers.ProjectedGradient"],
    ),
    "papers": (
        "Models of papers",
        "Published models for comparison, with wrong constants corrected.",
        [
            "papers.DPALS",
            "papers.PrivateFrankWolfe",
            "papers.PrivateSVD",
            "papers.PrivateProjectedGradient",
            "papers.CleansedSVD",
            "papers.OneBitCompletion",
        ],
    ),
    "serving": (
        "Trained models",
        "Training returns a model, and a ``.hush`` file holds it: released values only.",
        [
            "Model",
            "load",
            "serving.Recommended",
            "serving.Similar",
            "serving.Explanation",
            "serving.Attributes",
            "serving.stream_lists",
            "serving.UserState",
        ],
    ),
    "privacy": (
        "Budgets, ledgers and statements",
        "Promises, charges and privacy statements.",
        [
            "Budget",
            "Accountant",
            "Ledger",
            "privacy.LedgerSummary",
            "privacy.default_path",
            "PrivacyStatement",
            "Plan",
            "Release",
        ],
    ),
    "evaluation": (
        "Evaluation and tuning",
        "Figures on ratings that were held out. They are computed from private ratings, and marked so.",
        [
            "evaluate",
            "evaluation.Evaluation",
            "evaluation.Estimate",
            "evaluation.baselines",
            "compare",
            "evaluation.Comparison",
            "tune",
        ],
    ),
    "accounting": (
        "Privacy arithmetic",
        "Between epsilon, delta and mu, the cost of a Gaussian release. Rounding is to the safe side.",
        ["privacy.mu_of", "privacy.epsilon_of", "privacy.delta_of", "privacy.mu_of_pure", "privacy.total_mu"],
    ),
    "extending": (
        "Writing an estimator",
        "The users' side, the gate and mechanisms of a training.",
        [
            "Estimator",
            "Gate",
            "Bounded",
            "privacy.Bound",
            "privacy.signed",
            "privacy.positive",
            "privacy.counted",
            "privacy.jointly",
            "privacy.together",
            "privacy.Mechanism",
            "Gaussian",
            "privacy.Laplace",
            "privacy.RandomizedResponse",
            "privacy.RepeatAndSelect",
            "privacy.NoiseSource",
            "privacy.SystemNoise",
            "registry.ESTIMATORS",
            "registry.register",
        ],
    ),
    "errors": (
        "Errors",
        "Each message is one sentence that says what is wrong and what to do.",
        ["HushrecError", "InputError", "BudgetError", "LedgerError", "ModelFileError"],
    ),
    "engines": (
        "Where a training runs",
        "A Dask cluster, and two servers of which neither sees a rating.",
        [
            "engines.dask.Dask",
            "engines.two_servers.agreement.Agreement",
            "engines.two_servers.server.CollectingServer",
            "network.service.Service",
            "network.transport.Connection",
        ],
    ),
    "dossiers": (
        "Dossiers",
        "The document for a privacy officer, and its checks.",
        [
            "dossier.certify",
            "dossier.sign",
            "dossier.attach",
            "dossier.check",
            "dossier.model_card",
            "dossier.overview",
        ],
    ),
    "audits": (
        "Attacks and tests",
        "Measured attacks, and the checks that your estimator must pass.",
        [
            "audit.distinguish.distinguish",
            "audit.canaries.canaries",
            "audit.membership.membership",
            "testing.check_estimator",
            "privacy.testing.SeededNoise",
            "papers.masked.masking.masked",
            "papers.masked.masking.public_key",
            "papers.masked.masking.draw_coefficients",
            "papers.masked.reconstruction.reconstruct",
        ],
    ),
}
#: Public names that are neither classes nor functions, and where they are written down.
DATA = {"privacy.Mechanism": "privacy.mechanisms.Mechanism", "registry.ESTIMATORS": "registry.ESTIMATORS"}


def public_names() -> list[str]:
    """The names of hushrec/__init__.pyi."""
    tree = ast.parse((ROOT / "hushrec" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module]
    return sorted(alias.asname or alias.name for each in imports for alias in each.names)


def groups() -> dict[str, tuple[str, str, list[str]]]:
    """The groups, and one of the public names that have none."""
    grouped = {name for _, _, names in GROUPS.values() for name in names}
    rest = [name for name in public_names() if name not in grouped]
    return GROUPS | ({"more": ("More names", "Public names of other kinds.", rest)} if rest else {})


def thing(name: str) -> tuple[object, str]:
    """What a name of the reference stands for, and its docstring; names of submodules have dots."""
    place, _, last = DATA.get(name, name).rpartition(".")
    module = importlib.import_module(f"hushrec.{place}" if place else "hushrec")
    text = inspect.getdoc(getattr(module, last)) or ""
    if name in DATA:  # the string below an assignment
        body = ast.parse(inspect.getsource(module)).body
        for assigned, below in zip(body, body[1:]):
            target = getattr(assigned, "target", None) or (getattr(assigned, "targets", None) or [None])[0]
            if isinstance(target, ast.Name) and target.id == last:
                text = inspect.cleandoc(ast.literal_eval(below.value))  # type: ignore[attr-defined]
    return getattr(module, last), text
