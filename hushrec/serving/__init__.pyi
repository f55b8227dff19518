from .attributes import Attributes as Attributes
from .recommend import Explanation as Explanation, Recommended as Recommended
from .scoring import UserState as UserState
from .similar import Similar as Similar
