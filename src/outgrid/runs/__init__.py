"""The folder of a run: what is in it, whose it is, and what a crash leaves of it."""
