"""Trained models, their files, lists and predictions. The names are of what these return."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
