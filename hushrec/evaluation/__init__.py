"""How good a model is: metrics with intervals, and many models beside each other."""

from hushrec.evaluation.compare import Comparison, compare
from hushrec.evaluation.intervals import Estimate
from hushrec.evaluation.metrics import Evaluation, evaluate

__all__ = ["Comparison", "Estimate", "Evaluation", "compare", "evaluate"]
