"""What an encoder has learnt, drawn: map, neighbours, augmentations, curves."""
