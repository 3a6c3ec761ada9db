"""Smallest corrections of bugs that megatron-core has as released, by `--fix` of `train_gpt.py`.

One file each, whose `apply()` runs before a model is built. docs/case_study.md tells of the bugs.
"""
