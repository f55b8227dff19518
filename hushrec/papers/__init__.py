"""Algorithms of papers, one folder a paper, for comparison.

They are found by name like any other (:mod:`hushrec.registry`), and the core never imports them. The names
are those of ``__init__.pyi``, each imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
