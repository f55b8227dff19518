"""A signed dossier on a model for a privacy officer, which may be published and which anyone can check.

It holds released values, charges and declarations only: no path, and no number of private ratings.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
