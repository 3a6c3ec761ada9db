"""The rooms of `train_gpt.py`: its options, its process groups, its model, its weights."""
