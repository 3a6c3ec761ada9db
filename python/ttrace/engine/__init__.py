"""Where the parts of a check run when one machine is not enough. Nothing here computes."""
