from .attributes import Attributes as Attributes
from .lists import Explanation as Explanation, Recommended as Recommended, UserState as UserState
