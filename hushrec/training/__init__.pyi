from .estimator import Estimator as Estimator, Round as Round, plan_of as plan_of
from .gate import Gate as Gate
from .named import release_user_count as release_user_count
from .partitioned import Engine as Engine
from .users import Users as Users
