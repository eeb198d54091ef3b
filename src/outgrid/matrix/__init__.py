"""Dense matrices that outgrow memory: products with vectors, streamed from files chunk by chunk."""

from outgrid.matrix.product import StreamedMatrix

__all__ = ["StreamedMatrix"]
