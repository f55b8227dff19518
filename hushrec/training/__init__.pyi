from .estimator import Estimator as Estimator
from .gate import Gate as Gate
from .partitioned import Engine as Engine
from .trainable import Round as Round, plan_of as plan_of
from .users import Users as Users
