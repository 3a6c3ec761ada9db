"""Plain torch. `attach` is how it begins, `loop` what happens when."""
