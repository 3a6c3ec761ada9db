"""The framework-neutral part of capture: session, hooks, legs, grafting."""
