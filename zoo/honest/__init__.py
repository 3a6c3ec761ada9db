"""Training loops as people write them; what they share is used elsewhere, too."""
