"""Where the contributions of all users are added up, other than in one process: each engine is a gate."""
