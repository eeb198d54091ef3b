"""Dense matrices that outgrow memory: products with vectors, streamed from files chunk by chunk."""
