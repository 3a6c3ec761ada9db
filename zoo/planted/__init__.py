"""Faults planted by mechanism, one a file: one place of megatron-core is another. No report stands
behind them. `README.md` of the folder above is the table."""
