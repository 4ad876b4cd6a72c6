// Orders by keys and places: lexicographic rows, first touch, Hilbert curve, recursive coordinate bisection.

#include <cmath>

namespace {

// Order of the rows of a map by the positions of their targets, the smallest of a row counting first: a counting sort
// by the smallest, then each handful with the same smallest by the rest. The second smallest travels with the row's
// number, so that few comparisons have to look up rows.
template <class I>
void lexicographic(const I* indices, int64_t n, int64_t arity, const int64_t* position, int64_t n_targets,
                   int64_t* order) {
  struct Row {
    I second, number;
  };
  std::vector<I> keys(n * arity);
  std::vector<int64_t> next(n_targets + 1, 0);
  for (int64_t e = 0; e < n; ++e) {
    I* row = keys.data() + e * arity;
    for (int64_t s = 0; s < arity; ++s) row[s] = static_cast<I>(position[indices[e * arity + s]]);
    std::sort(row, row + arity);
    ++next[row[0] + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Row> rows(n);
  for (int64_t e = 0; e < n; ++e) {
    const I* row = keys.data() + e * arity;
    rows[next[row[0]]++] = {row[arity > 1], static_cast<I>(e)};
  }
  const auto before = [&](const Row& a, const Row& b) {
    if (a.second != b.second || arity <= 2) return a.second != b.second ? a.second < b.second : a.number < b.number;
    const I *x = keys.data() + int64_t(a.number) * arity, *y = keys.data() + int64_t(b.number) * arity;
    const auto differ = std::mismatch(x, x + arity, y);
    return differ.first == x + arity ? a.number < b.number : *differ.first < *differ.second;
  };
  int64_t from = 0;
  for (int64_t t = 0; t < n_targets; from = next[t++]) std::sort(rows.begin() + from, rows.begin() + next[t], before);
  for (int64_t k = 0; k < n; ++k) order[k] = rows[k].number;
}

// The map after both sides took new numbers: row k is row elements[k] of the old one, with targets by their position.
template <class I>
void renumber(const I* indices, int64_t n, int64_t arity, const int64_t* elements, const int64_t* position,
              I* renumbered) {
  for (int64_t k = 0; k < n; ++k)
    for (int64_t s = 0; s < arity; ++s)
      renumbered[k * arity + s] = static_cast<I>(position[indices[elements[k] * arity + s]]);
}

// Targets in the order in which elements touch them first; untouched ones at the end. Returns how many are touched.
template <class I>
int64_t first_touch(const int64_t* elements, int64_t n, const I* indices, int64_t arity, int64_t n_targets,
                    int64_t* order) {
  std::vector<uint8_t> seen(n_targets, 0);
  int64_t done = 0;
  const auto visit = [&](int64_t target) {
    if (seen[target]) return;
    seen[target] = 1;
    order[done++] = target;
  };
  for (int64_t i = 0; i < n; ++i)
    for (int64_t s = 0; s < arity; ++s) visit(indices[elements[i] * arity + s]);
  const int64_t touched = done;
  for (int64_t t = 0; t < n_targets; ++t) visit(t);
  return touched;
}

// Targets grouped by the set of blocks (runs of `block` elements) that touch them. Groups come in the order of their
// sorted lists of blocks, a list before its continuations: interior targets of block 0, those it shares with later
// blocks, interior targets of block 1, ... Within a group in the order of first touch.
template <class I>
void group_by_blocks(const int64_t* elements, int64_t n, const I* indices, int64_t arity, int64_t n_targets,
                     int64_t block, int64_t* order) {
  const int64_t touched = first_touch(elements, n, indices, arity, n_targets, order);
  std::vector<int64_t> offsets(n_targets + 1, 0), last(n_targets, -1);
  const auto each_new_block = [&](auto visit) {
    std::fill(last.begin(), last.end(), -1);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t s = 0; s < arity; ++s) {
        const int64_t target = indices[elements[i] * arity + s], b = i / block;
        if (last[target] == b) continue;
        last[target] = b;
        visit(target, b);
      }
  };
  each_new_block([&](int64_t target, int64_t) { ++offsets[target + 1]; });
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<I> blocks(offsets[n_targets]);
  std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);
  each_new_block([&](int64_t target, int64_t b) { blocks[next[target]++] = static_cast<I>(b); });

  const auto list = [&](int64_t t) { return blocks.data() + offsets[t]; };
  const auto before = [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(list(a), list(a + 1), list(b), list(b + 1));
  };
  for (int64_t from = 0; from < touched;) {  // first touch has sorted the first blocks of the lists already
    int64_t to = from;
    while (to < touched && *list(order[to]) == *list(order[from])) ++to;
    std::stable_sort(order + from, order + to, before);
    from = to;
  }
}

// Place on the Hilbert curve of 2^bits cells along each of D axes (Skilling 2004): Gray code undone, then interleaved.
template <int D>
uint64_t hilbert_key(uint32_t x[D], int bits) {
  for (uint32_t bit = uint32_t(1) << (bits - 1); bit > 1; bit >>= 1) {
    const uint32_t below = bit - 1;
    for (int d = 0; d < D; ++d) {
      if (x[d] & bit) {
        x[0] ^= below;
      } else {
        const uint32_t swapped = (x[0] ^ x[d]) & below;
        x[0] ^= swapped;
        x[d] ^= swapped;
      }
    }
  }
  for (int d = 1; d < D; ++d) x[d] ^= x[d - 1];
  uint32_t flips = 0;
  for (uint32_t bit = uint32_t(1) << (bits - 1); bit > 1; bit >>= 1)
    if (x[D - 1] & bit) flips ^= bit - 1;
  uint64_t key = 0;
  for (int b = bits - 1; b >= 0; --b)
    for (int d = 0; d < D; ++d) key = key << 1 | ((x[d] ^ flips) >> b & 1);
  return key;
}

// Keys of points (n, D) in the cube that has the longest extent of the cloud as its side: cells are squares.
template <int D>
void hilbert_keys(const double* points, int64_t n, uint64_t* keys, int64_t threads) {
  constexpr int BITS = D == 2 ? 31 : 21;
  double low[D], extent = 0;
  for (int d = 0; d < D; ++d) {
    double high = low[d] = n ? points[d] : 0.0;
    for (int64_t i = 0; i < n; ++i) {
      low[d] = std::min(low[d], points[i * D + d]);
      high = std::max(high, points[i * D + d]);
    }
    extent = std::max(extent, high - low[d]);
  }
  const double largest = double((uint64_t(1) << BITS) - 1);
  const double scale = extent > 0 && std::isfinite(largest / extent) ? largest / extent : 0.0;
#pragma omp parallel for schedule(static) num_threads((int)threads)
  for (int64_t i = 0; i < n; ++i) {
    uint32_t cell[D];
    for (int d = 0; d < D; ++d) cell[d] = uint32_t(std::min(largest, (points[i * D + d] - low[d]) * scale));
    keys[i] = hilbert_key<D>(cell, BITS);
  }
}

// Recursive coordinate bisection: cut across the longest extent, at the multiple of `block` nearest to the half, until
// a part is one block. Every block but the last is full. Points travel with their number, so that cutting streams
// through memory. Within a block elements keep their given order.
template <int D>
struct Bisection {
  struct Point {
    double at[D];
    int64_t number;
  };
  int64_t block;

  static int longest_axis(const Point* first, const Point* last) {
    double low[D], high[D];
    for (int d = 0; d < D; ++d) low[d] = high[d] = first->at[d];
    for (const Point* p = first; p < last; ++p)
      for (int d = 0; d < D; ++d) {
        low[d] = std::min(low[d], p->at[d]);
        high[d] = std::max(high[d], p->at[d]);
      }
    int axis = 0;
    for (int d = 1; d < D; ++d)
      if (high[d] - low[d] > high[axis] - low[axis]) axis = d;
    return axis;
  }

  void split(Point* first, Point* last) const {
    const int64_t n = last - first, blocks = (n + block - 1) / block;
    if (blocks <= 1) {
      std::sort(first, last, [](const Point& a, const Point& b) { return a.number < b.number; });
      return;
    }
    const int axis = longest_axis(first, last);
    Point* middle = first + blocks / 2 * block;
    std::nth_element(first, middle, last, [axis](const Point& a, const Point& b) {
      return a.at[axis] != b.at[axis] ? a.at[axis] < b.at[axis] : a.number < b.number;
    });
    constexpr int64_t WORTH_A_TASK = 1 << 16;
#pragma omp task if (n > WORTH_A_TASK)
    split(first, middle);
    split(middle, last);
#pragma omp taskwait
  }
};

template <int D>
void bisect(const double* points, int64_t n, int64_t block, int64_t* order, int64_t threads) {
  std::vector<typename Bisection<D>::Point> cloud(n);
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(points + i * D, D, cloud[i].at);
    cloud[i].number = i;
  }
#pragma omp parallel num_threads((int)threads)
#pragma omp single
  Bisection<D>{block}.split(cloud.data(), cloud.data() + n);
  for (int64_t i = 0; i < n; ++i) order[i] = cloud[i].number;
}

}  // namespace

extern "C" {

#define ROW_ORDERS(suffix, I)                                                                                       \
  int lexicographic_##suffix(const I* indices, int64_t n, int64_t arity, const int64_t* position,                   \
                             int64_t n_targets, int64_t* order) {                                                   \
    return guarded([&] { lexicographic(indices, n, arity, position, n_targets, order); });                          \
  }                                                                                                                 \
  int renumber_##suffix(const I* indices, int64_t n, int64_t arity, const int64_t* elements,                         \
                        const int64_t* position, I* renumbered) {                                                   \
    return guarded([&] { renumber(indices, n, arity, elements, position, renumbered); });                           \
  }                                                                                                                 \
  int first_touch_##suffix(const int64_t* elements, int64_t n, const I* indices, int64_t arity, int64_t n_targets,  \
                           int64_t* order) {                                                                        \
    return guarded([&] { first_touch(elements, n, indices, arity, n_targets, order); });                            \
  }                                                                                                                 \
  int group_by_blocks_##suffix(const int64_t* elements, int64_t n, const I* indices, int64_t arity,                 \
                               int64_t n_targets, int64_t block, int64_t* order) {                                  \
    return guarded([&] { group_by_blocks(elements, n, indices, arity, n_targets, block, order); });                 \
  }
FOR_INDEX_TYPES(ROW_ORDERS)

#define HILBERT_KEYS(D)                                                                      \
  int hilbert_keys_##D(const double* points, int64_t n, uint64_t* keys, int64_t threads) {   \
    return guarded([&] { hilbert_keys<D>(points, n, keys, threads); });                      \
  }
HILBERT_KEYS(2)
HILBERT_KEYS(3)

#define BISECT(D)                                                                                      \
  int bisect_##D(const double* points, int64_t n, int64_t block, int64_t* order, int64_t threads) {    \
    return guarded([&] { bisect<D>(points, n, block, order, threads); });                              \
  }
BISECT(1)
BISECT(2)
BISECT(3)

}  // extern "C"
