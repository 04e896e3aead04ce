"""The figures F1-F16, a subject a file. Each takes the facts and returns what was drawn, or why nothing was."""
