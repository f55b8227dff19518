"""A server in this process, and requests to it."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hushrec.data import Ratings, realistic
from hushrec.models import ESTIMATORS, Model
from hushrec.network.service import Limits, listen
from hushrec.privacy import Accountant, Budget
from hushrec.server.metrics import SIZE, Metrics
from hushrec.server.models import Models
from hushrec.server.process import Settings

RATINGS: Ratings = realistic(80, 30, 900, seed=0)
ITEMS = [str(item) for item in RATINGS.domain.items]


def two_tastes() -> Ratings:
    """Ratings of six in ten items; each user likes every second of them and no other."""
    rated = np.random.default_rng(0).random((200, len(ITEMS))) < 0.6
    users, places = np.nonzero(rated)
    stars = np.where((users + places) % 2, 1.0, 5.0)
    return Ratings.from_any(([f"u{user}" for user in users], np.array(ITEMS)[places], stars), RATINGS.domain)


FREE = Limits(body_bytes=1 << 16, requests_per_second=1e9, idle_seconds=5.0, request_seconds=5.0)


def trained(name: str = "als", **settings: Any) -> Model:
    rows = two_tastes() if name == "both" else RATINGS
    settings |= {"like_threshold": 4.0} if name == "both" else {}
    return ESTIMATORS[name](**settings).fit(rows, Accountant(Budget(math.inf, 1e-6)))


@dataclass
class Server:
    """One that runs."""

    url: str
    models: Models
    metrics: Metrics
    client: httpx.Client

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)


@contextlib.contextmanager
def serving(paths: dict[str, Path], limits: Limits = FREE, **options: Any):
    settings = Settings(models=paths, limits=limits, **options)
    models, metrics = Models(paths, settings.tables, rules=settings.rules), Metrics(bytearray(8 * SIZE))
    with (
        settings.service(listen("127.0.0.1", 0), models, metrics) as service,
        httpx.Client(base_url=service.url, trust_env=False, timeout=30) as client,
    ):
        yield Server(service.url, models, metrics, client)


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> dict[str, Path]:
    """One file of each kind of model."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    for name in ("als", "both", "private-eigenrec", "item-bias"):
        found[name] = folder / f"{name}.hush"
        trained(name).save(found[name])
    found["small"] = folder / "small.hush"
    trained("als").save(found["small"], int8=True)
    return found


@pytest.fixture(scope="module")
def server(files):
    page = Path(__file__).parents[2] / "hushrec" / "web"
    with serving(files, page=page) as found:
        yield found
