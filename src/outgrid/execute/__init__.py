"""Obeying a program: reference (NumPy), streaming (the real one), counting (moves nothing)."""
