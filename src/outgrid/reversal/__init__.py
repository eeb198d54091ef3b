"""The parts of a gradient: objectives, cuts, strategies, runs back in time, and what is made."""
