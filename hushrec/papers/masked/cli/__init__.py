"""The commands of masked completion, which `hushrec.cli` finds by name."""
