"""Obeying a program: the window, the call of a kernel, and the loop, on a processor or a device."""
