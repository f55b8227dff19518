"""Estimators, their users, the gate, and one run. The names are what an estimator is written with."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
