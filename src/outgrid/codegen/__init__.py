"""Writing: from a stencil to the C++ source of its kernel. Runs no compiler."""
