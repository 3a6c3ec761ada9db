"""Megatron-core. `entry_points` says where it is patched, `iteration` what happens when."""
