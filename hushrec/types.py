"""Types that all rooms share."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
