"""Ranks without a launcher: functions of the caller's, run in copies of a process that is kept.

To import torch takes longer than to train a tiny model for two steps. A process (`server.py`)
imports torch and the modules of the functions once; each launch is a fork of it. What `ttrace diff`
starts in a launch's place is `client.py`, which imports nothing: it asks the server, waits, and
ends as the ranks did. `calls.py` is how a function gets there, `processes.py` what ranks are.
"""
