"""Files of numbers that others made, or will read."""
