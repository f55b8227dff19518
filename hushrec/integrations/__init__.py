"""Components for other tools: `hushrec.integrations.lenskit` and `hushrec.integrations.mlflow`."""
