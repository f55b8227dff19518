"""One small file of each format, and the answers that every later version must give."""
