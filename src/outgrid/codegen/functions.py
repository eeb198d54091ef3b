"""Elementary functions of a vector, or of one number, in operations that round alike everywhere.

What a library makes of exp(x) depends on its version and on the processor. Here each function is
written in additions, products, quotients, fused multiply-adds, comparisons and words of bits, so
its value is the same for every compiler, vector length, processor and device, and costs an eighth
or a sixteenth of a call. Errors are below one unit in the last place, of tanh below two; the tests
compare with higher precision.

Arguments are reduced and results put together in well-known ways (W. J. Cody and W. Waite,
Software Manual for the Elementary Functions, 1980; K. C. Ng's notes on fdlibm, 1992; M. Payne and
R. Hanek, SIGNUM Newsletter 18, 1983); tools/minimax.py finds the polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from outgrid.codegen.vector import TYPES

__all__ = ["ELEMENTARY", "elementary"]

# Names and numbers of operands.
ELEMENTARY = {"exp": 1, "log": 1, "sin": 1, "cos": 1, "tanh": 1, "pow": 2}

# Lowest power first, for float64 and float32: what remains of exp(r) - 1 - r over r r, of
# log((1 + s) / (1 - s)) - 2 s over s z, of sin(r) - r over r z and of cos(r) - 1 + z / 2 over z z,
# where z is s s or r r.
POLYNOMIALS = {
    "float64": {
        "EXP": (
            0.5000000000000011,
            0.16666666666666413,
            0.041666666666530267,
            0.00833333333349437,
            0.00138888889435969,
            0.00019841269506703902,
            2.4801493136819457e-05,
            2.7557586330750612e-06,
            2.7630233750819665e-07,
            2.500005318752354e-08,
        ),
        "LOG": (
            0.6666666666666734,
            0.3999999999941468,
            0.2857142874238671,
            0.22222198573270088,
            0.18183564321834922,
            0.15314050660350198,
            0.1479594862213986,
        ),
        "SIN": (
            -0.1666666666666663,
            0.008333333333322118,
            -0.0001984126982958948,
            2.7557313621365987e-06,
            -2.505074775996798e-08,
            1.5896230001314969e-10,
        ),
        "COS": (
            0.041666666666666595,
            -0.0013888888888873056,
            2.480158728885172e-05,
            -2.755731417930022e-07,
            2.087570084236357e-09,
            -1.1358536538352531e-11,
        ),
    },
    "float32": {
        "EXP": (
            0.4999999403953552,
            0.1666652113199234,
            0.04166838899254799,
            0.008368710055947304,
            0.0013814613921567798,
        ),
        "LOG": (0.6666677594184875, 0.3997754156589508, 0.29871729016304016),
        "SIN": (-0.16666655242443085, 0.00833216030150652, -0.00019515282474458218),
        "COS": (0.04166664555668831, -0.0013887316454201937, 2.44331567955669e-05),
    },
}

# Words and fractions of the two formats, in bits; the largest sizes of arguments that matter to
# exp and tanh; and the largest angle that three parts of pi / 2 bring back to the first quarter.
FORMATS = {
    "float64": (64, 52, 710, 750, 40, 2.0**20),
    "float32": (32, 23, 90, 105, 20, 2.0**12),
}

# V is a vector of numbers or a number, M the words of their bits; what a comparison gives is for
# `choose`.
TEXT = r"""
OG_INLINE V power_of_two(M n) { return real_of((n + kBias) << kStored); }
OG_INLINE V nearest(V a) { return (a + kShift) - kShift; }
OG_INLINE M integer(V whole) { return bits_of(whole + kShift) - kShiftBits; }
OG_INLINE V number(M whole) { return real_of(whole + kShiftBits) - kShift; }

// What is left of exp(x + low) but for 1 after n times ln 2 went out of x.
OG_INLINE V exp_rest(V x, V low, V& n) {
  n = nearest(x * kPerLn2);
  const V high = fma(n, all(-kLn2), x);  // exact
  low = fma(n, all(-kLn2Low), low);
  const V r = high + low;
  return high + fma(r * r, exp_polynomial(r), low);
}
OG_INLINE V exp_sum(V x, V low) {
  V n;
  const V rest = exp_rest(x, low, n);
  const M whole = integer(n), half = whole >> 1;  // 2^n may be no number where the result is one
  return (rest + kOne) * power_of_two(half) * power_of_two(whole - half);
}
OG_INLINE V within_exp(V x) { return most(all(kExpLeast), least(all(kExpMost), x)); }  // or NaN
OG_INLINE V exp_of(V x) { return exp_sum(within_exp(x), V{}); }
OG_INLINE V tanh_of(V x) {
  V n;
  const V size = magnitude(x), rest = exp_rest(most(all(kTanhLeast), -(size + size)), V{}, n);
  const V scale = power_of_two(integer(n)), less = fma(scale, rest, scale - kOne);
  const Truth far = less < -kFar;  // less is t - 1, t = exp(-2 |x|), the quotient 2 t / (t + 1)
  const V over = choose(far, kTwo * fma(scale, rest, scale), -less) / (less + kTwo);
  const V found = choose(far, kOne - over, over);
  return real_of((bits_of(found) & ~kSign) | (bits_of(x) & kSign));
}
// A positive number is 2^n (1 + f).
OG_INLINE V log_fraction(V x, V& n) {
  const Truth tiny = x < kSmallest;
  const M bits = bits_of(choose(tiny, x * kLift, x)) - kRootHalf;
  n = number(bits >> kStored) - choose(tiny, all(kLifted), V{});
  return real_of((bits & kFraction) + kRootHalf) - kOne;
}
OG_INLINE V log_of(V x) {
  V n;
  const V f = log_fraction(x, n), s = f / (f + kTwo), z = s * s, half = f * f * kHalf;
  const V rest = s * fma(z, log_polynomial(z), half);
  const V found = fma(n, all(kLn2), f - (half - fma(n, all(kLn2Low), rest)));
  const V infinite = real_of(M{} + kInfinite);
  const V below = choose(x == 0, -infinite, real_of(M{} + kNotANumber));
  return choose(x > 0, choose(x < infinite, found, x), choose(x != x, x, below));
}

// a + b is the result and what is lost (D. E. Knuth).
OG_INLINE V two_sum(V a, V b, V& lost) {
  const V sum = a + b, part = sum - a;
  lost = (a - (sum - part)) + (b - part);
  return sum;
}
// exp(y log x) of the size of x, the logarithm in two parts, for numbers that are not at an end.
OG_INLINE V pow_size(V x, V y) {
  V n, lost, sum_lost;
  const V f = log_fraction(x, n), sum = two_sum(all(kTwo), f, sum_lost), s = f / sum, z = s * s;
  const V s_low = fma(-s, sum_lost, fma(-s, sum, f)) / sum;
  const V turns = n * kLn2, turns_low = fma(n, all(kLn2Low), fma(n, all(kLn2), -turns));
  const V first = two_sum(turns, s + s, lost);
  const V then = lost + (turns_low + fma(s * z, log_polynomial(z), s_low + s_low));
  const V high = first + then, low = (first - high) + then;
  const V product = y * high, least_part = fma(y, low, fma(y, high, -product));
  const V x_log = within_exp(product);
  return exp_sum(x_log, choose(x_log == product, least_part, V{}));
}
OG_INLINE V pow_of(V x, V y) {
  const V size = magnitude(x), y_size = magnitude(y), infinite = real_of(M{} + kInfinite);
  // What ends in whole powers and in odd ones; large numbers are even.
  const Truth whole = (y_size >= kEven) | (nearest(y) == y);
  const Truth odd = whole & (y_size < kEven) & (nearest(y * kHalf) != y * kHalf);
  const Truth zero = x == 0, end = zero | (size == infinite);
  const V at_end = choose((y > 0) == zero, V{}, infinite);
  V found = choose(end, at_end, pow_size(size, y));
  found = choose((x < 0) & negated(whole | end), real_of(M{} + kNotANumber), found);
  found = choose(odd, real_of(bits_of(found) ^ (bits_of(x) & kSign)), found);
  found = choose((x != x) | (y != y), x + y, found);
  return choose((y == 0) | (x == kOne), all(kOne), found);
}

// An angle is n quarters of a turn, and near + rest.
struct Turned {
  V near, rest;
  M n;
};
OG_INLINE Turned turned(V x) {
  const V n = nearest(x * kPerQuarter), t = fma(n, all(-kQuarter0), x);  // exact
  const V product = n * -kQuarter1, left = fma(n, all(-kQuarter1), -product);
  V lost;
  const V sum = two_sum(t, product, lost);
  Turned a;
  a.near = choose(n == 0, x, sum);  // -0 stays
  a.rest = fma(n, all(-kQuarter2), lost + left);
  a.n = integer(n);
  if (any(negated(magnitude(x) <= kTurned))) {
    for (int i = 0; i < kLanes; ++i) {
      const REAL one = OG_LANE(x, i);
      if (-kTurned <= one && one <= kTurned) continue;
      double near, rest;
      OG_LANE(a.n, i) = static_cast<INTEGER>(turned_far(one, near, rest));
      OG_LANE(a.near, i) = REAL(near);
      OG_LANE(a.rest, i) = REAL(near - REAL(near) + rest);
    }
  }
  return a;
}
OG_INLINE V quarter(const Turned& a, M n) {
  const V z = a.near * a.near, v = z * a.near, half = z * kHalf, w = kOne - half;
  const V sine = a.near - ((z * (kHalf * a.rest - v * sin_polynomial(z)) - a.rest) - v * kSine);
  const V cosine = w + (((kOne - w) - half) + (z * z * cos_polynomial(z) - a.near * a.rest));
  const V found = choose((n & 1) == 0, sine, cosine);
  return real_of(bits_of(found) ^ (((n >> 1) & 1) << kTop));
}
OG_INLINE V sin_of(V x) {
  const Turned a = turned(x);
  return quarter(a, a.n);
}
OG_INLINE V cos_of(V x) {
  const Turned a = turned(x);
  return quarter(a, a.n + 1);
}
"""

# For large angles: their bits times those of 2 / pi that decide upon the quarter and what is left.
FAR = r"""
OG_INLINE uint64_t high_product(uint64_t a, uint64_t b) {
  const uint64_t low = 0xffffffff, a0 = a & low, a1 = a >> 32, b0 = b & low, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & low);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}
OG_INLINE void shift_left(uint64_t (&q)[4], int by) {
  for (int i = 0; i < 4; ++i) q[i] = q[i] << by | (i < 3 ? q[i + 1] >> (64 - by) : 0);
}
OG_CALL int64_t turned_far(double x, double& near, double& rest) {
  constexpr uint64_t table[] = {PER_QUARTER};  // 64 bits before the point, and those after it
  const int64_t bits = bits_of_double(x);
  const int exponent = int(bits >> 52 & 2047);
  near = x == x ? real_of_double(0x7ff8000000000000) : x;
  rest = 0;
  if (exponent == 2047) return 0;  // no angle
  // x is m 2^(exponent - 1075), and what bits above this one are worth times m is whole turns.
  const uint64_t m = uint64_t((bits & 0xfffffffffffff) | 0x10000000000000);
  const int first = exponent - 1075 - 2 + 64, word = first / 64, shift = first % 64;
  uint64_t q[4], carry = 0;
  for (int i = 3; i >= 0; --i) {
    const uint64_t high = table[word + i], low = table[word + i + 1];
    const uint64_t part = shift ? high << shift | low >> (64 - shift) : high;
    q[i] = m * part + carry;
    carry = high_product(m, part) + (q[i] < carry);
  }
  int64_t n = int64_t(q[0] >> 62);
  shift_left(q, 2);
  const bool above = q[0] >> 63;  // nearer to the next quarter
  for (int i = 0; above && i < 4; ++i) q[i] = ~q[i];
  n += above;
  int zeros = 0;
  for (; zeros < 128 && !(q[0] >> 63); ++zeros) shift_left(q, 1);
  const double high = double(q[0] >> 11) * 0x1p-53;
  const double low = double((q[0] & 2047) << 42 | q[1] >> 22) * 0x1p-106;
  const double product = high * kDouble0;
  const double error = fma_double(high, kDouble0, -product) + (high * kDouble1 + low * kDouble0);
  const double scale = real_of_double(int64_t(1023 - zeros) << 52);
  const double turned = above != (x < 0) ? -scale : scale;
  near = (product + error) * turned;
  rest = ((product - (product + error)) + error) * turned;
  return x < 0 ? -n : n;
}
"""


def elementary(dtype: str) -> str:
    """C++ of exp_of, log_of, sin_of, cos_of, tanh_of and pow_of for ``V`` of ``dtype`` cells.

    Asks for V and M, kLanes and OG_LANE, OG_INLINE and OG_CALL; bits_of and real_of between V and M
    and between double and its word; all, fma, fma_double, magnitude, least, most, choose, negated
    and any.
    """
    real, integer, *_ = TYPES[dtype]
    words = ", ".join(f"{word:#x}u" for word in _words(Fraction(2) / PI, 20))
    lines = [
        "namespace elementary {",
        *_constants(dtype),
        *_polynomials(dtype),
        FAR.replace("PER_QUARTER", words),
        TEXT,
        "}",
        *(f"using elementary::{name}_of;" for name in sorted(ELEMENTARY)),
    ]
    return "\n".join(lines).replace("REAL", real).replace("INTEGER", integer)


def _arc(inverse: int, sign: int) -> Fraction:
    """The inverse (sign 1: hyperbolic) tangent of 1 / inverse to 1400 bits."""
    places, total, k = 1 << 1400, 0, 0
    power = places // inverse
    while power:
        total += sign**k * power // (2 * k + 1)
        power, k = power // inverse**2, k + 1
    return Fraction(total, places)


LN2 = 2 * _arc(3, 1)
PI = 16 * _arc(5, -1) - 4 * _arc(239, -1)  # Machin, 1706


def _words(value: Fraction, count: int) -> Iterator[int]:
    """The whole part, and then 64 bits at a time."""
    for _ in range(count + 1):
        yield int(value)
        value = (value - int(value)) * 2**64


def _parts(value: Fraction, dtype: str, count: int) -> list[str]:
    """Numbers of the type that add up to ``value``, each the nearest to what is left."""
    number = np.dtype(dtype).type
    found: list[str] = []
    for _ in range(count):
        nearest = float(number(float(value)))
        found.append(nearest.hex())
        value -= Fraction(nearest)
    return found


def _constants(dtype: str) -> Iterator[str]:
    width, stored, most, least, tanh, turned = FORMATS[dtype]
    bias = (1 << (width - 2 - stored)) - 1
    shift = 1.5 * 2.0**stored
    root_half = (bias - 1 << stored) + math.isqrt(2 ** (2 * stored + 1)) - 2**stored
    quarters = _parts(PI / 2, dtype, 3)
    ln2, ln2_low = _parts(LN2, dtype, 2)
    reals = {
        "kHalf": "0.5",
        "kFar": "0.75",
        "kOne": "1",
        "kTwo": "2",
        "kShift": shift.hex(),
        "kLn2": ln2,
        "kLn2Low": ln2_low,
        "kPerLn2": _parts(1 / LN2, dtype, 1)[0],
        "kExpMost": str(most),
        "kExpLeast": str(-least),
        "kTanhLeast": str(-tanh),
        "kSmallest": (2.0 ** (1 - bias)).hex(),
        "kLift": (2.0 ** (stored + 2)).hex(),
        "kLifted": str(stored + 2),
        "kTurned": turned.hex(),
        "kEven": (2.0 ** (stored - 1)).hex(),
        "kPerQuarter": _parts(2 / PI, dtype, 1)[0],
        **{f"kQuarter{n}": part for n, part in enumerate(quarters)},
        "kSine": POLYNOMIALS[dtype]["SIN"][0].hex(),
    }
    integers = {
        "kBias": bias,
        "kStored": stored,
        "kTop": width - 1,
        "kSign": f"-{(1 << width - 1) - 1} - 1",
        "kFraction": (1 << stored) - 1,
        "kRootHalf": root_half,
        "kInfinite": 2 * bias + 1 << stored,
        "kNotANumber": (4 * bias + 3) << (stored - 1),
        "kShiftBits": (bias + stored << stored) | 1 << (stored - 1),
    }
    yield from (f"constexpr REAL {name} = REAL({value});" for name, value in reals.items())
    yield from (f"constexpr INTEGER {name} = {value};" for name, value in integers.items())
    doubles = _parts(PI / 2, "float64", 2)
    yield from (f"constexpr double kDouble{n} = {part};" for n, part in enumerate(doubles))


def _polynomials(dtype: str) -> Iterator[str]:
    """Functions by Horner's rule; the first term of the sine stands apart."""
    for name, terms in POLYNOMIALS[dtype].items():
        first, *rest = reversed(terms[1:] if name == "SIN" else terms)
        yield f"OG_INLINE V {name.lower()}_polynomial(V z) {{"
        yield f"  V p = all(REAL({first.hex()}));"
        yield from (f"  p = fma(p, z, all(REAL({each.hex()})));" for each in rest)
        yield "  return p;"
        yield "}"
