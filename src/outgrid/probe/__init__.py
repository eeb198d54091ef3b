"""Measuring a machine: memory, caches and the scratch folder, once, kept for later plans."""
