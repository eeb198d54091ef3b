"""Deciding: from a problem, a memory limit and a machine to a frozen plan and its program.

Nothing here touches a clock, a file, the environment or an array.
"""
