"""Programs that do the same with what a user would pick instead.

Each of the programs here but `compare` is a script of its own that imports nothing of outgrid: it
reads a problem from a JSON file, steps it, writes the answer and prints the seconds of its sweeps,
without what it took to start and to compile. So the packages may live in any interpreter.

The problem: u + k*((sum of the six neighbours) - 6*u) on a grid in float64 or float32 whose
boundary layer stays as it is, from the file ``start`` to the file ``answer``, both .npy.
"""
