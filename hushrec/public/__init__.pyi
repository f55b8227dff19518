from .item_vectors import item_vectors as item_vectors
from .judging import Judged as Judged
from .sources import PublicRatings as PublicRatings
