"""A dossier on a model for whoever answers for privacy: signed, for publication, checked by anybody.

It holds released values, charges and declared things only: no path, and no number of private rows.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
