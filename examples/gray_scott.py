"""Two substances that react and spread: the Gray-Scott model, as a stencil of two fields.

u_t = a lap(u) - u v^2 + feed (1 - u)
v_t = b lap(v) + u v^2 - (feed + kill) v
"""

import outgrid as og


@og.stencil
def gray_scott(u, v, *, a=0.16, b=0.08, feed=0.037, kill=0.06):
    """One explicit step of unit length on a grid of unit spacing."""
    reaction = u * v * v
    return {
        "u": u + a * og.laplacian(u) - reaction + feed * (1 - u),
        "v": v + b * og.laplacian(v) + reaction - (feed + kill) * v,
    }
