"""The parts of scripts/sweep.py: what to run, running it, judging it, writing it down."""
