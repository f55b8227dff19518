from .judging import Judged as Judged
from .sources import PublicRatings as PublicRatings
