"""hushrec models in MLflow, logged, loaded and served: ``pip install "hushrec[mlflow]"``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hushrec import __version__
from hushrec.checks import check_kind
from hushrec.data import Ratings
from hushrec.errors import InputError, MissingPackageError
from hushrec.serving.model import Model, load

try:
    from mlflow import pyfunc
    from mlflow.artifacts import download_artifacts
    from mlflow.models import Model as MlflowModel, ModelSignature
    from mlflow.types import ParamSchema, ParamSpec
except ImportError:
    raise MissingPackageError("The MLflow flavour", "mlflow") from None

FLAVOR_NAME = "hushrec"
_FILE, _HOW = "model.hush", "pass the result of fit"


def log_model(model: Model, name: str = "model", **options: Any) -> Any:
    """Log a model to the active run, like the ``log_model`` of any flavour.

    ``options`` are ``artifacts`` of `save_model`, ``registered_model_name`` and other parameters of MLflow.
    """
    check_kind(model, Model, "model", _HOW)
    flavor = sys.modules[__name__]
    return MlflowModel.log(artifact_path=None, name=name, flavor=flavor, model=model, **options)


def save_model(
    model: Model,
    path: Any,
    mlflow_model: Any = None,
    artifacts: Sequence[Any] = (),
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write a folder that MLflow reads, with the privacy statement in its metadata.

    Parameters
    ----------
    model : Model
    path : path
        A new folder.
    mlflow_model : mlflow.models.Model, optional
    artifacts : sequence of path
        Public files to store with the model, such as its dossier.
    metadata : dict, optional
    """
    check_kind(model, Model, "model", _HOW)
    folder, described = Path(path), MlflowModel() if mlflow_model is None else mlflow_model
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{str(path)!r} exists and is not empty; pass the name of a new folder.")
    if missing := [str(artifact) for artifact in artifacts if not Path(artifact).is_file()]:
        raise InputError(f"{missing[0]!r} is not a file; pass the paths of files to log with the model.")
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / _FILE)
    for artifact in artifacts:
        shutil.copy(artifact, folder)
    (folder / "requirements.txt").write_text(f"hushrec[mlflow]=={__version__}\npandas\n", encoding="utf-8")
    versions = ".".join(map(str, sys.version_info[:3]))
    environment = f"python: {versions}\nbuild_dependencies: []\ndependencies:\n- -r requirements.txt\n"
    (folder / "python_env.yaml").write_text(environment, encoding="utf-8")
    described.metadata = {
        **(described.metadata or {}),
        **(metadata or {}),
        "privacy": model.privacy.to_dict(),
    }
    described.signature = ModelSignature(params=ParamSchema([ParamSpec("n", "long", 10)]))
    described.add_flavor(FLAVOR_NAME, data=_FILE, hushrec_version=__version__)
    pyfunc.add_to_model(described, loader_module=__name__, data=_FILE, python_env="python_env.yaml")
    described.save(str(folder / "MLmodel"))


def load_model(model_uri: str) -> Model:
    """Read a model by an address such as ``runs:/…/model`` or ``models:/films/3``."""
    return load(Path(download_artifacts(model_uri)) / _FILE)


class _Lists:
    """From data frames of ratings to lists; both are private."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def predict(self, frame: Any, params: dict[str, Any] | None = None) -> Any:
        history = Ratings.from_any(frame, self._model.domain, implicit=self._model.domain.likes)
        return self._model.recommend_batch(history, int((params or {}).get("n", 10))).to_pandas()


def _load_pyfunc(path: str) -> _Lists:
    """Load a model for MLflow, which calls this by name."""
    return _Lists(load(path))
