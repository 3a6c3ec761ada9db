"""The parts of scripts/loop_mutants.py: which loops and mutants, running them, judging, writing."""
