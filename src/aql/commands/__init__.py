"""The commands of `aql`, each a function of its arguments that gives the exit code."""
