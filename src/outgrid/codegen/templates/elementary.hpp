// Elementary functions of a vector, or of one number, in operations that round alike everywhere:
// exp_of, log_of, sin_of, cos_of, tanh_of and pow_of.
//
// Asks for Real and Integer, V and M, vectors of them or single ones, and Truth, what a comparison
// gives; kLanes, kDouble and OG_LANE; OG_INLINE and OG_CALL; bits_of and real_of between V and M,
// and those of a double; all, fma, magnitude, least, most, choose, negated and any; and OG_SCALED
// where one instruction makes v 2^n, rounded once.
//
// Polynomials are found by tools/minimax.py, lowest power first; the tests compare the other
// numbers with those of a library.
#pragma once

namespace {
namespace elementary {

// Two numbers of the format, bits of its fraction, and of a word but for the sign.
constexpr Integer kStored = kDouble ? 52 : 23, kBias = kDouble ? 1023 : 127;
constexpr Integer kTop = kDouble ? 63 : 31;
constexpr Integer kSign = Integer(1) << kTop;
constexpr Integer kFraction = (Integer(1) << kStored) - 1;
constexpr Integer kRootHalf = Integer(kDouble ? 0x3fe6a09e667f3bcc : 0x3f3504f3);
constexpr Integer kInfinite = (2 * kBias + 1) << kStored;
constexpr Integer kNotANumber = (4 * kBias + 3) << (kStored - 1);
constexpr Integer kShiftBits = (kBias + kStored) << kStored | Integer(1) << (kStored - 1);

constexpr Real kHalf = Real(0.5), kFar = Real(0.75), kOne = 1, kTwo = 2;
constexpr Real kShift = Real(kDouble ? 0x1.8p+52 : 0x1.8p+23);  // its bits are kShiftBits
constexpr Real kLn2 = Real(kDouble ? 0x1.62e42fefa39efp-1 : 0x1.62e43p-1);
constexpr Real kLn2Low = Real(kDouble ? 0x1.abc9e3b39803fp-56 : -0x1.05c61p-29);
constexpr Real kPerLn2 = Real(kDouble ? 0x1.71547652b82fep+0 : 0x1.715476p+0);
// The largest sizes of arguments that matter to exp and tanh.
constexpr Real kExpMost = kDouble ? 710 : 90, kExpLeast = kDouble ? -750 : -105;
constexpr Real kTanhLeast = kDouble ? -40 : -20;
constexpr Real kLifted = kDouble ? 54 : 25;
constexpr Real kLift = Real(kDouble ? 0x1p+54 : 0x1p+25);  // 2^kLifted
constexpr Real kSmallest = Real(kDouble ? 0x1p-1022 : 0x1p-126);
constexpr Real kEven = Real(kDouble ? 0x1p+51 : 0x1p+22);
// The largest angle that three parts of pi / 2 bring back to the first quarter.
constexpr Real kTurned = Real(kDouble ? 0x1p+20 : 0x1p+12);
constexpr Real kPerQuarter = Real(kDouble ? 0x1.45f306dc9c883p-1 : 0x1.45f306p-1);
constexpr Real kQuarter0 = Real(kDouble ? 0x1.921fb54442d18p+0 : 0x1.921fb6p+0);
constexpr Real kQuarter1 = Real(kDouble ? 0x1.1a62633145c07p-54 : -0x1.777a5cp-25);
constexpr Real kQuarter2 = Real(kDouble ? -0x1.f1976b7ed8fbcp-110 : -0x1.ee59dap-50);
constexpr double kDouble0 = 0x1.921fb54442d18p+0, kDouble1 = 0x1.1a62633145c07p-54;
constexpr Real kSine = Real(kDouble ? -0x1.5555555555548p-3 : -0x1.555546p-3);

// A polynomial by Horner's rule, of as many numbers.
template <class Number>
OG_INLINE V horner(V, Number last) {
  return all(Real(last));
}
template <class Number, class... Numbers>
OG_INLINE V horner(V z, Number first, Numbers... others) {
  return fma(horner(z, others...), z, all(Real(first)));
}

// What remains of exp(r) - 1 - r over r r, of log((1 + s) / (1 - s)) - 2 s over s z, of sin(r) - r
// over r z, but for the first term, kSine, and of cos(r) - 1 + z / 2 over z z; z is s s or r r.
OG_INLINE V exp_polynomial(V r) {
  if constexpr (kDouble) {
    return horner(r, 0x1.000000000000ap-1, 0x1.55555555554fap-3, 0x1.555555555088cp-5,
                  0x1.1111111127bb0p-7, 0x1.6c16c18426548p-10, 0x1.a01a012a62fc5p-13,
                  0x1.a0199a1713647p-16, 0x1.71df2548851a9p-19, 0x1.28ad6880f95b1p-22,
                  0x1.ad7f658e0d7e7p-26);
  } else {
    return horner(r, 0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558f2p-5, 0x1.1239d4p-7, 0x1.6a244ep-10);
  }
}
OG_INLINE V log_polynomial(V z) {
  if constexpr (kDouble) {
    return horner(z, 0x1.5555555555592p-1, 0x1.999999997fdb8p-2, 0x1.24924941f11abp-2,
                  0x1.c71c5209649dbp-3, 0x1.74663ee6f5a00p-3, 0x1.39a1badc70764p-3,
                  0x1.2f056213a1866p-3);
  } else {
    return horner(z, 0x1.55557ap-1, 0x1.995ebap-2, 0x1.31e2f2p-2);
  }
}
OG_INLINE V sin_polynomial(V z) {
  if constexpr (kDouble) {
    return horner(z, 0x1.111111110f7d0p-7, -0x1.a01a019bfdeedp-13, 0x1.71de3567d366dp-19,
                  -0x1.ae5e5a91bcba9p-26, 0x1.5d8fd1c36bef2p-33);
  } else {
    return horner(z, 0x1.11073ap-7, -0x1.9943ep-13);
  }
}
OG_INLINE V cos_polynomial(V z) {
  if constexpr (kDouble) {
    return horner(z, 0x1.555555555554bp-5, -0x1.6c16c16c14f91p-10, 0x1.a01a019c844fap-16,
                  -0x1.27e4f7eac4e57p-22, 0x1.1ee9d7b4fae45p-29, -0x1.8fa49a1265518p-37);
  } else {
    return horner(z, 0x1.55554ap-5, -0x1.6c0c34p-10, 0x1.99eb9cp-16);
  }
}

OG_INLINE V power_of_two(M n) { return real_of((n + kBias) << kStored); }
OG_INLINE V nearest(V a) { return (a + kShift) - kShift; }
OG_INLINE M integer(V whole) { return bits_of(whole + kShift) - kShiftBits; }
OG_INLINE V number(M whole) { return real_of(whole + kShiftBits) - kShift; }

// 2^n v. As a number 2^n may be none where the product is one.
OG_INLINE V scaled(V v, V n) {
#if defined(OG_SCALED)
  return OG_SCALED(v, n);
#else
  const M whole = integer(n), half = whole >> 1;
  return v * power_of_two(half) * power_of_two(whole - half);
#endif
}

// What is left of x, but for the rest of ln 2, after n times ln 2 went out of it.
OG_INLINE V without_turns(V x, V& n) {
  n = fma(x, all(kPerLn2), all(kShift)) - kShift;
  return fma(n, all(-kLn2), x);  // exact
}
// What is left of exp(x + low) but for 1.
OG_INLINE V exp_rest(V x, V low, V& n) {
  const V high = without_turns(x, n);
  low = fma(n, all(-kLn2Low), low);
  const V r = high + low;
  return high + fma(r * r, exp_polynomial(r), low);
}
OG_INLINE V exp_sum(V x, V low) {
  V n;
  const V rest = exp_rest(x, low, n);
  return scaled(rest + kOne, n);
}
OG_INLINE V within_exp(V x) { return most(all(kExpLeast), least(all(kExpMost), x)); }  // or NaN
OG_INLINE V exp_of(V x) {
  V n;
  const V high = without_turns(within_exp(x), n), r = fma(n, all(-kLn2Low), high);
  return scaled(fma(fma(exp_polynomial(r), r, all(kOne)), r, all(kOne)), n);
}
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
  const Truth one = (y == 0) | (x == kOne) | ((size == kOne) & (y_size == infinite));
  return choose(one, all(kOne), found);
}

// For large angles: their bits times those of 2 / pi that decide upon the quarter and what is left.
OG_INLINE uint64_t high_product(uint64_t a, uint64_t b) {
  const uint64_t low = 0xffffffff, a0 = a & low, a1 = a >> 32, b0 = b & low, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & low);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}
OG_INLINE void shift_left(uint64_t (&q)[4], int by) {
  for (int i = 0; i < 4; ++i) q[i] = q[i] << by | (i < 3 ? q[i + 1] >> (64 - by) : 0);
}
OG_CALL int64_t turned_far(double x, double& near, double& rest) {
  // 64 bits before the point, and those after it.
  // clang-format off
  constexpr uint64_t per_quarter[] = {
      0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
      0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
      0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
      0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
      0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
      0xf0cfbc209af4361d};
  // clang-format on
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
    const uint64_t high = per_quarter[word + i], low = per_quarter[word + i + 1];
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
  const double error = fma(high, kDouble0, -product) + (high * kDouble1 + low * kDouble0);
  const double scale = real_of_double(int64_t(1023 - zeros) << 52);
  const double turned = above != (x < 0) ? -scale : scale;
  near = (product + error) * turned;
  rest = ((product - (product + error)) + error) * turned;
  return x < 0 ? -n : n;
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
      const Real one = OG_LANE(x, i);
      if (-kTurned <= one && one <= kTurned) continue;
      double near, rest;
      OG_LANE(a.n, i) = static_cast<Integer>(turned_far(one, near, rest));
      OG_LANE(a.near, i) = Real(near);
      OG_LANE(a.rest, i) = Real(near - Real(near) + rest);
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

}  // namespace elementary

using elementary::cos_of;
using elementary::exp_of;
using elementary::log_of;
using elementary::pow_of;
using elementary::sin_of;
using elementary::tanh_of;

}  // namespace
