"""Running an iteration of a plain torch loop again, in its own process: see tape.py."""
