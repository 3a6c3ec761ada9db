"""Making wheels: which interpreters, how one is built and repaired, what a finished one must be."""
