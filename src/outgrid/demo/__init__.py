"""The demonstration: a tsunami over a real sea floor, on a grid ten times its memory limit."""
