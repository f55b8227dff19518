"""The MLflow flavour: logged, loaded, predicted with and served as MLflow's own tests of flavours do."""

import json
from pathlib import Path

import pandas as pd
import pytest

import hushrec

mlflow = pytest.importorskip("mlflow")
from hushrec.integrations import mlflow as flavour  # noqa: E402

RATINGS = hushrec.realistic(60, 20, 700, seed=0)
MODEL = hushrec.ItemBias().fit(RATINGS, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
ROWS = RATINGS.to_arrow().to_pandas()


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())


def test_a_logged_model_is_loaded_and_predicts(tmp_path) -> None:
    dossier = tmp_path / "dossier.html"
    dossier.write_text("what was promised")
    with mlflow.start_run():
        logged = flavour.log_model(MODEL, "films", artifacts=[dossier])
    assert flavour.load_model(logged.model_uri).to_bytes() == MODEL.to_bytes()
    kept = Path(mlflow.artifacts.download_artifacts(logged.model_uri)) / "dossier.html"
    assert kept.read_text() == "what was promised"
    described = mlflow.models.get_model_info(logged.model_uri)
    assert described.metadata["privacy"] == json.loads(json.dumps(MODEL.privacy.to_dict()))
    assert described.metadata["privacy"]["epsilon"] == 5 and "hushrec" in described.flavors
    served = mlflow.pyfunc.load_model(logged.model_uri)
    for n in (10, 3):
        found = served.predict(ROWS, params={"n": n})
        pd.testing.assert_frame_equal(found, MODEL.recommend_batch(RATINGS, n).to_pandas())


def test_the_scoring_server_answers(tmp_path) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    from mlflow.pyfunc import scoring_server

    flavour.save_model(MODEL, tmp_path / "saved")
    app = scoring_server.init(mlflow.pyfunc.load_model(str(tmp_path / "saved")))
    body = {"dataframe_split": json.loads(ROWS[:5].to_json(orient="split", index=False)), "params": {"n": 2}}
    reply = testclient.TestClient(app).post("/invocations", json=body)
    rows = RATINGS.from_any(ROWS[:5], RATINGS.domain)
    told = pd.DataFrame(reply.json()["predictions"])
    assert told["item"].tolist() == MODEL.recommend_batch(rows, 2).to_pandas()["item"].tolist()


def test_what_is_no_model_is_refused(tmp_path) -> None:
    with pytest.raises(hushrec.InputError, match="model must be Model, not ItemBias"):
        flavour.log_model(hushrec.ItemBias())
    with pytest.raises(hushrec.InputError, match="'nowhere.html' is not a file"):
        flavour.save_model(MODEL, tmp_path / "saved", artifacts=["nowhere.html"])
    flavour.save_model(MODEL, tmp_path / "saved")
    with pytest.raises(hushrec.InputError, match="exists and is not empty"):
        flavour.save_model(MODEL, tmp_path / "saved")
