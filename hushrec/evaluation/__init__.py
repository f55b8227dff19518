"""Quality of models: metrics with intervals, and comparisons of many models."""

from hushrec.evaluation.baselines import baselines
from hushrec.evaluation.compare import Comparison, compare, cross_validate
from hushrec.evaluation.intervals import Estimate
from hushrec.evaluation.metrics import Evaluation, evaluate
from hushrec.evaluation.user_metrics import METRICS

__all__ = [
    "METRICS",
    "Comparison",
    "Estimate",
    "Evaluation",
    "compare",
    "cross_validate",
    "evaluate",
    "baselines",
]
