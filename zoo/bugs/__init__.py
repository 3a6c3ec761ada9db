"""Real bugs of parallel training, one a file. `README.md` of the folder above is the table."""
