"""Stencils of the soak that the catalog does not have."""

import outgrid as og


@og.stencil
def coupled(u, v, c, *, k=0.1):
    """Two fields and a coefficient, each read to another side."""
    return {
        "u": u + k * (v[1, 0, -1] - u) * c[0, 1, 0],
        "v": v + k * (u[-1, 1, 0] + u[0, 0, 1] - v - v[0, -1, 0]),
    }


@og.stencil
def leaning(u, *, k=0.1):
    """The previous level beside its cell: three rings."""
    return u + k * (u.previous[1, 0] - u.previous[-1, 0])


@og.stencil
def staggered(e, h, c, *, k=0.1):
    """Two stages, each field in place."""
    return [
        {"h": h + k * c * (e[1, 0, 0] - e + e[0, 2, 0] - e[0, -1, 1])},
        {"e": e + k * (h - h[-1, 0, 0] + h[0, 1, 0])},
    ]


@og.stencil
def masked(u, v, mask, *, k=0.1):
    """Fields of several types, one of them a mask of bytes."""
    return {
        "u": og.where(mask > 100, u, u + k * og.laplacian(u)),
        "v": v + k * (u[1, 0, 0] - v[0, -1, 1]) * (mask / 255),
    }
