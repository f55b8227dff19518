"""Counts and times of requests by address and outcome, summed over all users, for Prometheus.

They hold no identity, item, address or body size. Each worker counts in its row of a shared array.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

ROUTES = (
    "/v1/recommend", "/v1/predict", "/v1/similar", "/v1/explain", "/v1/privacy", "/v1/models",
    "/openapi.json", "/healthz", "/metrics", "/models", "/page", "/other",
)  # fmt: skip
#: Upper ends of the time buckets, in seconds.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
#: Numbers of a route: replies of 2xx to 5xx, replies by time, and seconds.
_CODES, _WIDTH = 4, 4 + len(_BUCKETS) + 2
_OWN = ("exchanged", "refused")
#: Numbers of one worker.
SIZE = len(ROUTES) * _WIDTH + len(_OWN)


def route_of(path: str) -> str:
    """Return the route under which a path is counted; a path itself is private."""
    if path in ROUTES:
        return path
    if path.startswith("/models/") or path == "/model.hush":
        return "/models"
    return "/page" if path == "/" or path.endswith((".html", ".js", ".css")) else "/other"


class Metrics:
    """Counts of all workers: `SIZE` float64 numbers for each in a shared buffer."""

    def __init__(self, shared: Any, worker: int = 0) -> None:
        self._all = np.frombuffer(shared, np.float64).reshape(-1, SIZE)
        self._own = self._all[worker]

    def note(self, path: str, status: int, seconds: float) -> None:
        start = ROUTES.index(route_of(path)) * _WIDTH
        self._own[start + min(max(status // 100 - 2, 0), _CODES - 1)] += 1
        self._own[start + _CODES + bisect_left(_BUCKETS, seconds)] += 1
        self._own[start + _WIDTH - 1] += seconds

    def models(self, exchanged: int, refused: int) -> None:
        self._own[-len(_OWN) :] = exchanged, refused

    def text(self, models: list[tuple[str, str]]) -> str:
        total = self._all.sum(axis=0)
        lines = ["# TYPE hushrec_requests_total counter"]
        seconds = ["# TYPE hushrec_request_seconds histogram"]
        for place, route in enumerate(ROUTES):
            row = total[place * _WIDTH : (place + 1) * _WIDTH]
            for code, count in enumerate(row[:_CODES]):
                label = f'route="{route}",code="{code + 2}xx"'
                lines.append(f"hushrec_requests_total{{{label}}} {count:.0f}")
            counts = np.cumsum(row[_CODES:-1])
            for bound, count in zip((*map(str, _BUCKETS), "+Inf"), counts, strict=True):
                seconds.append(f'hushrec_request_seconds_bucket{{route="{route}",le="{bound}"}} {count:.0f}')
            seconds.append(f'hushrec_request_seconds_sum{{route="{route}"}} {row[-1]:.6f}')
            seconds.append(f'hushrec_request_seconds_count{{route="{route}"}} {counts[-1]:.0f}')
        for name, count in zip(_OWN, total[-len(_OWN) :], strict=True):
            lines += [
                f"# TYPE hushrec_models_{name}_total counter",
                f"hushrec_models_{name}_total {count:.0f}",
            ]
        lines.append("# TYPE hushrec_model_info gauge")
        lines += [f'hushrec_model_info{{model="{name}",digest="{digest}"}} 1' for name, digest in models]
        return "\n".join([*lines, *seconds, ""])
