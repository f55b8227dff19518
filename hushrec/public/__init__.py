"""Public ratings, used together with a private model (docs/guides/public.md)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
