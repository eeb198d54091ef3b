// What looks at updated cells one by one: sources and receivers, the watch for values that are not
// finite, and snapshots. A `Cell` is how the fields that are looked at are kept.
#pragma once

#include "cpu/call.hpp"
#include "cpu/regions.hpp"
#include "cpu/tile.hpp"

namespace {

// The first index from `low` on at which plane or row i comes, whole periods later.
OG_INLINE int64_t turned(int64_t period, int64_t i, int64_t low) {
  return period > 0 && i < low ? i + (low - i + period - 1) / period * period : i;
}

// Where the plane or the row i comes for the first time.
OG_INLINE int64_t unturned(int64_t period, int64_t i) { return period > 0 ? i % period : i; }

// Whether the stage updates a field, and cells of this type.
template <class Cell, class Stencil>
OG_INLINE bool updates(int stage, int64_t field) {
  return Stencil::writer(field) == stage && Stencil::cell_kind(field) == kKind<Cell>;
}

template <class Cell, class Stencil>
OG_INLINE Cell* plane_of(const Call<Stencil>& s, int64_t field, int64_t level, int64_t z) {
  return static_cast<Cell*>(Stencil::plane_of(s, field, level, z));
}

// Visits the cell of a place wherever it comes on planes [z0, z1) of a tile, if it is of a field
// that the stage of level t updates: a block may have planes or rows twice that come again.
template <class Cell, class Stencil, class Visit>
OG_INLINE void visit(const Call<Stencil>& s, const int64_t* at, int64_t t, int stage, int64_t z0,
                     int64_t z1, const Tile& c, const Visit& each) {
  if (!updates<Cell, Stencil>(stage, at[0]) || at[3] < c.x0 || at[3] >= c.x1) return;
  const int64_t planes = s.period > 0 ? s.period : s.planes;
  const int64_t rows = s.row_period > 0 ? s.row_period : s.rows;
  const int64_t first = turned(s.row_period, at[2], c.y0);
  for (int64_t z = turned(s.period, at[1], z0); z >= z0 && z < z1; z += planes) {
    for (int64_t y = first; y >= c.y0 && y < c.y1; y += rows) {
      each(plane_of<Cell>(s, at[0], s.base + t, z)[place_of(s.row_stride, y, at[3])]);
    }
  }
}

// Sources add to what was just made, then receivers look at it.
template <class Cell, class Stencil>
void points(const Call<Stencil>& s, int64_t t, int stage, int64_t z0, int64_t z1, const Tile& c) {
  for (int64_t n = 0; n < s.injections; ++n) {
    const int64_t* at = s.injected + 4 * n;
    const double amount = s.amounts[(t - 1) * s.injections + n];
    visit<Cell>(s, at, t, stage, z0, z1, c, [&](Cell& cell) { cell = added(cell, amount); });
  }
  for (int64_t n = 0; n < s.receptions; ++n) {
    const int64_t* at = s.sampled + 4 * n;
    double& sample = s.samples[(t - 1) * s.receptions + n];
    visit<Cell>(s, at, t, stage, z0, z1, c, [&](const Cell& cell) { sample = cell; });
  }
}

// Whether all values of a tile are finite: v - v is 0 for those, and NaN for all others.
template <class Cell>
OG_INLINE bool all_finite(const Cell* plane, int64_t stride, const Tile& c) {
  V a{}, b{}, d{}, e{};  // chains that do not wait for each other
  Real rest = 0;
  const int64_t end = begin_of(c) + count_of(c);
  for (int64_t y = c.y0; y < c.y1; y += kFold) {
    const Cell* row = plane + y * stride;
    int64_t x = begin_of(c);
    for (; x + 4 * kLanes <= end; x += 4 * kLanes) {
      const V va = load(row + x), vb = load(row + x + kLanes);
      const V vd = load(row + x + 2 * kLanes), ve = load(row + x + 3 * kLanes);
      a += va - va, b += vb - vb, d += vd - vd, e += ve - ve;
    }
    for (; x + kLanes <= end; x += kLanes) {
      const V v = load(row + x);
      a += v - v;
    }
    for (; x < end; ++x) rest += Real(row[x] - row[x]);
  }
  const V sum = (a + b) + (d + e);
  for (int64_t l = 0; l < kLanes; ++l) rest += sum[l];
  return rest == 0;
}

// Visits the parts of a tile in whose columns a field is kept, with the stride of its rows.
template <class Stencil, class Visit>
OG_INLINE void each_kept(const Slab& s, int64_t field, const Tile& c, const Visit& visit) {
  if (!Stencil::kNarrow[field] || s.narrow_stride == s.row_stride) return visit(c, s.row_stride);
  for (int64_t n = 0; n < s.narrow_parts; ++n) {
    const int64_t* ends = s.narrow_columns + 2 * n;
    const Tile part{c.y0, c.y1, most(c.x0, ends[0]), least(c.x1, ends[1])};
    if (part.x0 < part.x1) visit(part, s.narrow_stride);
  }
}

// Notes the first value of a part of a plane that is not finite.
// Places are counted by level, stage, plane, row, column and field, and twice: infinite, or NaN.
template <class Cell, class Stencil>
void look_at(const Call<Stencil>& s, int64_t t, int stage, int64_t z, int64_t field, const Tile& c,
             int64_t stride) {
  const Cell* plane = plane_of<Cell>(s, field, s.base + t, z);
  if (all_finite(plane, stride, c)) return;
  for (int64_t y = c.y0; y < c.y1; ++y) {
    auto cell = [&](int64_t x) { return plane[place_of(stride, y, x)]; };
    int64_t x = c.x0;
    while (x < c.x1 && cell(x) - cell(x) == 0) ++x;
    if (x == c.x1) continue;
    int64_t place = (t - 1) * Stencil::kStages + stage;
    place = place * s.planes + unturned(s.period, z);
    place = place * (s.row_period > 0 ? s.row_period : s.rows) + unturned(s.row_period, y);
    place = (place * s.columns + x) * Stencil::kFields + field;
    place = 2 * place + (cell(x) != cell(x));
    int64_t now = __atomic_load_n(s.broken, __ATOMIC_RELAXED);
    while (place < now && !__atomic_compare_exchange_n(s.broken, &now, place, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
}

// Looks at what a stage has just made in a tile. Fields are +0 in parts of regions that lack them.
template <class Cell, class Stencil>
void look(const Call<Stencil>& s, int64_t t, int stage, int64_t z0, int64_t z1, const Tile& c) {
  if constexpr (kIsWhole<Cell>) return;  // which are finite
  for (int64_t field = 0; field < Stencil::kFields; ++field) {
    if (!updates<Cell, Stencil>(stage, field)) continue;
    const int64_t absent = Stencil::kAbsent[field];
    for (int64_t z = z0; z < z1; ++z) {
      auto kept = [&](const Tile& made, int64_t flags) {
        if (flags & absent) return;
        each_kept<Stencil>(s, field, made, [&](const Tile& part, int64_t stride) {
          look_at<Cell>(s, t, stage, z, field, part, stride);
        });
      };
      absent == 0 ? kept(c, 0) : by_region(s, z, 1, c, absent, kept);
    }
  }
}

// A number in another type of cells, rounded once: a double becomes a half by way of the odd one of
// two neighbouring floats, which the half does not mistake for a number halfway between two.
template <class To, class From>
OG_INLINE To rounded(From a) {
  if constexpr (sizeof(To) == 2 && std::is_same_v<From, double>) {
    const float near = float(a);
    if (double(near) == a || a != a) return To(near);
    const int bits = float_bits(near),
              away = (near < 0 ? -double(near) : double(near)) > (a < 0 ? -a : a);
    return To(float_of((bits - away) | 1));
  } else {
    return To(a);
  }
}

// Values on their way to a file, where they are of type `Kept`: neighbours there are put at once.
template <class Cell, class Kept>
class Parcel {
 public:
  Parcel(Outlet* outlet, int64_t file) : outlet_(outlet), file_(file) {}
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;
  ~Parcel() { send(); }

  // `count` values from `from` on, every `step`-th, go `at` bytes into the file.
  void put(int64_t at, const Cell* from, int64_t count, int64_t step) {
    while (count > 0) {
      if (held_ == kMost || at != at_ + held_ * kItem) send();
      if (held_ == 0) at_ = at;
      const int64_t n = least(count, kMost - held_);
      take(values_ + held_, from, n, step);
      held_ += n, count -= n, at += n * kItem, from += n * step;
    }
  }

 private:
  static constexpr int64_t kMost = 4096, kItem = sizeof(Kept);
  Kept values_[kMost];
  int64_t held_ = 0, at_ = 0;
  Outlet* outlet_;
  int64_t file_;

  static void take(Kept* to, const Cell* from, int64_t count, int64_t step) {
    int64_t i = 0;
    if constexpr (std::is_same_v<Cell, Real> && sizeof(Real) == 4 && sizeof(Kept) == 2) {
      for (; step == 1 && i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    }
    for (; i < count; ++i) to[i] = rounded<Kept>(from[i * step]);
  }

  void send() {
    if (held_ > 0) outlet_->put(outlet_, file_, at_, values_, held_ * kItem);
    held_ = 0;
  }
};

// The first index of a part that is not below i.
OG_INLINE int64_t from(const Part& p, int64_t i) {
  return i <= p.first ? p.first : p.first + (i - p.first + p.step - 1) / p.step * p.step;
}

// What a snapshot keeps of planes [z0, z1) of a tile, `frames` after its first one.
template <class Cell, class Kept, class Stencil>
void keep(const Call<Stencil>& s, const Snapshot& kept, int64_t frames, int64_t t, int64_t z0,
          int64_t z1, const Tile& c) {
  const int64_t own_y0 = most(c.y0, s.own_y0), own_y1 = least(c.y1, s.own_y1);
  const int64_t x0 = from(kept.x, c.x0), x1 = least(kept.x.end, c.x1);
  if (own_y0 >= own_y1 || x0 >= x1) return;
  const int64_t count = (x1 - x0 + kept.x.step - 1) / kept.x.step;
  const int64_t before = frames * kept.z.count();
  Parcel<Cell, Kept> parcel(s.outlet, kept.file);
  for (int64_t i = most(z0, s.own_z0); i < least(z1, s.own_z1); ++i) {
    const int64_t z = unturned(s.period, i);
    if (z < kept.z.first || z >= kept.z.end || (z - kept.z.first) % kept.z.step != 0) continue;
    const Cell* plane = plane_of<Cell>(s, kept.field, s.base + t, i);
    const int64_t planes = before + (z - kept.z.first) / kept.z.step;
    for (int64_t begin = own_y0, end; begin < own_y1; begin = end) {  // of rows up to a period
      const int64_t turn = begin - unturned(s.row_period, begin);
      end = s.row_period > 0 ? least(own_y1, turn + s.row_period) : own_y1;
      const int64_t stop = least(kept.y.end, end - turn);
      for (int64_t y = from(kept.y, begin - turn); y < stop; y += kept.y.step) {
        const int64_t rows = planes * kept.y.count() + (y - kept.y.first) / kept.y.step;
        const int64_t cells = rows * kept.x.count() + (x0 - kept.x.first) / kept.x.step;
        int64_t at = kept.offset + cells * sizeof(Kept);
        auto put = [&](int64_t x, int64_t n) {
          const Cell* from = plane + place_of(s.row_stride, y + turn, x);
          parcel.put(at, from, n, kept.x.step);
          at += n * sizeof(Kept);
        };
        if constexpr (kFold == 1) {
          put(x0, count);
        } else {  // as many as lie side by side
          for (int64_t x = x0, next; x < x1; x = next) {
            next = kept.x.step > 1 ? x + kept.x.step : least(x1, x / kAcross * kAcross + kAcross);
            put(x, kept.x.step > 1 ? 1 : next - x);
          }
        }
      }
    }
  }
}

// What snapshots keep of planes [z0, z1) of a tile goes to their outlet. A plane is as the stage
// has left it, fixed cells included: each tile gives what it has written.
template <class Cell, class Stencil>
void snapshots(const Call<Stencil>& s, int64_t t, int stage, int64_t z0, int64_t z1,
               const Tile& c) {
  for (int64_t n = 0; n < s.snapshots; ++n) {
    const Snapshot& kept = s.kept[n];
    const int64_t since = s.made + t - kept.begin, frames = since / kept.every;
    if (!updates<Cell, Stencil>(stage, kept.field) || since < 0 || since % kept.every != 0)
      continue;
    if (kept.kind == kKind<Cell>) {
      keep<Cell, Cell>(s, kept, frames, t, z0, z1, c);
    } else if constexpr (std::is_floating_point_v<Cell>) {  // in a shorter type
      if (kept.kind == kKind<Half>)
        keep<Cell, Half>(s, kept, frames, t, z0, z1, c);
      else if (kept.kind == kKind<UpperHalf>)
        keep<Cell, UpperHalf>(s, kept, frames, t, z0, z1, c);
      else
        keep<Cell, float>(s, kept, frames, t, z0, z1, c);
    }
  }
}

}  // namespace
