"""Compiling kernels, caching them by digest, loading them. Knows no stencil mathematics."""
