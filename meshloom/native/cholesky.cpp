// Incomplete Cholesky factorisation of sparse symmetric matrices, and a coloring that spreads rows over many colors.
// Matrices come by rows, columns ascending, the diagonal included. Sizes and offsets are int64, columns I = int32 or
// int64. Inputs were checked by the Python side.

#include <cmath>

namespace {

// What became of a factorisation: verdict[0] is one of these, verdict[1] the row where it ended.
constexpr int64_t FACTORED = 0, BROKE_DOWN = 1, NO_ROOM = 2;
constexpr double LEAST_PIVOT = 1e-13;  // of the entry of A on the diagonal: less is rounding

// A (1 + shift on the diagonal) is about L D L^T, L with a diagonal of ones. Crout's order: row k of L^T is
//   d_k l_jk = a_kj - sum over i < k of l_ki d_i l_ji,  j > k,
// so it needs the rows i with an entry in column k, from there on. Each finished row waits in the list of the column of
// its next entry. What is kept of a row: entries whose level of fill is at most `fill` (those of A have 0, others the sum
// of the levels of the two that make them and 1), or, with fill < 0, those above `drop` times the geometric mean of the
// two entries on the diagonal; and none between two rows of one stage, which are solved for at the same time.
template <class I>
class Crout {
 public:
  Crout(int64_t rows, const int64_t* a_offsets, const I* a_columns, const double* a_values, const int32_t* stage_of)
      : n(rows), starts(a_offsets), columns(a_columns), values(a_values), stage(stage_of), size(n), work(n), seen(n, -1), depth(n),
        head(n, NONE), next(n, NONE), place(n) {
    for (int64_t k = 0; k < n; ++k)
      for (int64_t q = starts[k]; q < starts[k + 1]; ++q)
        if (columns[q] == k) size[k] = values[q];
  }

  void run(int64_t fill, double drop, double shift, int64_t room, int64_t* offsets, I* kept, double* factors,
           double* pivots, int64_t* verdict) {
    offsets[0] = 0;
    for (int64_t k = 0; k < n; ++k) {
      begin_row(k, size[k] * (1.0 + shift));
      take_earlier_rows(k, fill, offsets, kept, factors, pivots);
      verdict[1] = k;
      if (!(pivot > LEAST_PIVOT * size[k])) {
        verdict[0] = BROKE_DOWN;
        return;
      }
      pivots[k] = pivot;
      if (!keep_row(k, fill, drop, room, offsets, kept, factors)) {
        verdict[0] = NO_ROOM;
        return;
      }
      wait_for_next(k, offsets[k], offsets[k + 1], kept);
    }
    verdict[0] = FACTORED;
  }

 private:
  static constexpr int64_t NONE = -1;
  int64_t n;
  const int64_t* starts;
  const I* columns;
  const double* values;
  const int32_t* stage;
  std::vector<double> size, work;     // the diagonal of A; the row being made
  std::vector<int64_t> seen;          // per column: the last row that had something there
  std::vector<int32_t> depth;         // its level there
  std::vector<int64_t> head, next;    // per column: the rows that wait for it
  std::vector<int64_t> place;         // per row: its next entry
  std::vector<int32_t> levels;        // of the entries that were kept
  std::vector<I> found;               // columns of the row being made
  double pivot = 0.0;

  void begin_row(int64_t k, double diagonal) {
    pivot = diagonal;
    found.clear();
    for (int64_t q = starts[k]; q < starts[k + 1]; ++q)
      if (columns[q] > k) put(k, columns[q], values[q], 0);
  }

  void put(int64_t k, I column, double value, int32_t level) {
    seen[column] = k;
    work[column] = value;
    depth[column] = level;
    found.push_back(column);
  }

  void take_earlier_rows(int64_t k, int64_t fill, const int64_t* offsets, const I* kept, const double* factors,
                         const double* pivots) {
    for (int64_t i = head[k]; i != NONE;) {
      const int64_t first = place[i], after = next[i];
      const double pull = factors[first] * pivots[i];
      pivot -= pull * factors[first];
      for (int64_t q = first + 1; q < offsets[i + 1]; ++q) {
        const I column = kept[q];
        const int32_t level = levels[first] + levels[q] + 1;
        if (seen[column] == k) {
          work[column] -= pull * factors[q];
          depth[column] = std::min(depth[column], level);
        } else if ((fill < 0 || level <= fill) && stage[column] != stage[k]) {
          put(k, column, -pull * factors[q], level);
        }
      }
      wait_for_next(i, first + 1, offsets[i + 1], kept);
      i = after;
    }
  }

  bool keep_row(int64_t k, int64_t fill, double drop, int64_t room, int64_t* offsets, I* kept, double* factors) {
    std::sort(found.begin(), found.end());
    int64_t end = offsets[k];
    for (I column : found) {
      if (fill < 0 && !(std::abs(work[column]) > drop * std::sqrt(size[k] * size[column]))) continue;
      if (end == room) return false;
      kept[end] = column;
      factors[end++] = work[column] / pivot;
      levels.push_back(depth[column]);
    }
    offsets[k + 1] = end;
    return true;
  }

  void wait_for_next(int64_t row, int64_t entry, int64_t end, const I* kept) {
    place[row] = entry;
    if (entry == end) return;
    next[row] = head[kept[entry]];
    head[kept[entry]] = row;
  }
};

// The pivots of the factorisation that keeps the entries of A beside the diagonal as they are:
// d_k = a_kk - sum over i < k of a_ik^2 / d_i.
template <class I>
void diagonal_alone(int64_t n, const int64_t* offsets, const I* columns, const double* values, double shift,
                    double* pivots, int64_t* verdict) {
  std::vector<double> size(n);
  for (int64_t k = 0; k < n; ++k)
    for (int64_t q = offsets[k]; q < offsets[k + 1]; ++q)
      if (columns[q] == k) size[k] = values[q], pivots[k] = values[q] * (1.0 + shift);
  for (int64_t k = 0; k < n; ++k) {
    verdict[1] = k;
    if (!(pivots[k] > LEAST_PIVOT * size[k])) {
      verdict[0] = BROKE_DOWN;
      return;
    }
    for (int64_t q = offsets[k]; q < offsets[k + 1]; ++q)
      if (columns[q] > k) pivots[columns[q]] -= values[q] * values[q] / pivots[k];
  }
  verdict[0] = FACTORED;
}

// Colors of blocks of rows, block b being order[block_offsets[b] : block_offsets[b + 1]]: each in turn gets, beginning
// behind the color given last and going round, the first of so many that no linked block has. Returns the first block
// that finds all of them taken, or -1.
template <class I>
int64_t color_in_turn(int64_t n_blocks, const int64_t* block_offsets, const int64_t* order, const int64_t* block_of,
                      const int64_t* offsets, const I* columns, int64_t many, int32_t* colors) {
  std::vector<int64_t> taken(many, -1);
  int64_t first = 0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (int64_t i = block_offsets[b]; i < block_offsets[b + 1]; ++i)
      for (int64_t q = offsets[order[i]]; q < offsets[order[i] + 1]; ++q) {
        const int32_t color = colors[block_of[columns[q]]];
        if (color >= 0 && block_of[columns[q]] != b) taken[color] = b;
      }
    int64_t tries = 0;
    while (tries < many && taken[(first + tries) % many] == b) ++tries;
    if (tries == many) return b;
    colors[b] = static_cast<int32_t>((first + tries) % many);
    first = (colors[b] + 1) % many;
  }
  return -1;
}

}  // namespace

extern "C" {

#define FACTOR(suffix, I)                                                                                           \
  int factor_##suffix(int64_t n, const int64_t* a_offsets, const I* a_columns, const double* a_values,               \
                      const int32_t* stage, int64_t fill, double drop, double shift, int64_t room, int64_t* offsets, I* columns, double* factors,       \
                      double* pivots, int64_t* verdict) {                                                           \
    return guarded([&] {                                                                                            \
      Crout<I>(n, a_offsets, a_columns, a_values, stage)                                                                   \
          .run(fill, drop, shift, room, offsets, columns, factors, pivots, verdict);                                \
    });                                                                                                             \
  }                                                                                                                 \
  int diagonal_alone_##suffix(int64_t n, const int64_t* offsets, const I* columns, const double* values,            \
                              double shift, double* pivots, int64_t* verdict) {                                     \
    return guarded([&] { diagonal_alone(n, offsets, columns, values, shift, pivots, verdict); });                   \
  }
FOR_INDEX_TYPES(FACTOR)

#define COLOR_IN_TURN(suffix, I)                                                                                    \
  int color_in_turn_##suffix(int64_t n_blocks, const int64_t* block_offsets, const int64_t* order,                  \
                             const int64_t* block_of, const int64_t* offsets, const I* columns, int64_t many,       \
                             int32_t* colors, int64_t* failed) {                                                    \
    return guarded([&] {                                                                                            \
      *failed = color_in_turn(n_blocks, block_offsets, order, block_of, offsets, columns, many, colors);            \
    });                                                                                                             \
  }
FOR_INDEX_TYPES(COLOR_IN_TURN)

}  // extern "C"
