"""What a stencil and a problem are: values that name fields, offsets and numbers."""
