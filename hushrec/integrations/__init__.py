"""hushrec in the tools that people have: `hushrec.integrations.lenskit` and `hushrec.integrations.mlflow`."""
