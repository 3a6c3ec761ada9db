"""One adapter a framework: it names tensors, states placements and drives the legs."""
