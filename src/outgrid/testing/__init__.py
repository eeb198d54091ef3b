"""For tests of outgrid, and of what is built on it."""
