from .attributes import Attributes as Attributes
from .batch import stream_lists as stream_lists
from .recommend import Explanation as Explanation, Recommended as Recommended
from .scoring import UserState as UserState
from .similar import Similar as Similar
