// Faces of a mesh from the sides of its cells.
//
// 1. Every side goes to the bucket of its smallest node (a counting sort).
// 2. In each bucket, sides with the same nodes are found by sorting the handful there is; two make a face.
// 3. Faces are numbered in the order in which the cells meet them, the side of the earlier cell giving the nodes.
// Whatever is wrong (three sides that are the same, two that go round in the same sense) is only noted: who asked looks
// for it in another way, and says what it is.

#include <array>
#include <atomic>

namespace {

constexpr int MOST = 4;  // nodes of a side

// Cells of several kinds: cell c has the nodes entries[starts[c]...], and its kind says which of them its sides have.
// sides[c] is the number of its first side. Kind k has counts[k] sides; side s of it has sizes[k * width + s] nodes,
// local[(k * width + s) * MOST + i].
template <class I>
struct Cells {
  const I* entries;
  const int64_t *starts, *sides;
  const int8_t* kinds;
  int64_t n;
  const int64_t *counts, *sizes, *local;
  int64_t width;

  int64_t side_count(int64_t cell) const { return counts[kinds[cell]]; }
  int size(int64_t cell, int64_t slot) const { return int(sizes[kinds[cell] * width + slot]); }
  // The nodes of a side in outward order; how many they are.
  int nodes(int64_t cell, int64_t slot, I* found) const {
    const int64_t* at = local + (kinds[cell] * width + slot) * MOST;
    const int k = size(cell, slot);
    for (int i = 0; i < k; ++i) found[i] = entries[starts[cell] + at[i]];
    return k;
  }
};

template <class I>
struct Side {
  std::array<I, MOST> key;  // its nodes, ascending; -1 in front of those of triangles and edges
  int64_t number, cell;
  bool operator<(const Side& other) const { return key != other.key ? key < other.key : number < other.number; }
};

// Do two loops of the same nodes go round in opposite senses?
template <class I>
bool opposite(const I* a, const I* b, int k) {
  if (k == 2) return a[0] == b[1];
  int at = 0;
  while (b[at] != a[0]) ++at;
  for (int i = 1; i < k; ++i)
    if (b[(at + i) % k] != a[k - i]) return false;
  return true;
}

constexpr int ALONE = -1, SECOND = -2;

// beyond[s]: of the first side of a face the cell of its second, which has SECOND; ALONE where a side meets nothing.
// Returns how many faults there are.
template <class I>
int64_t match_sides(const Cells<I>& cells, int64_t n_nodes, I* beyond, int64_t threads) {
  const int64_t n_sides = cells.sides[cells.n];
  std::vector<std::atomic<int64_t>> next(n_nodes + 1);
  std::vector<int64_t> numbers(n_sides);
  std::vector<I> owners(n_sides);
  const auto each_side = [&](auto visit) {
#pragma omp parallel for schedule(static) num_threads((int)threads)
    for (int64_t cell = 0; cell < cells.n; ++cell) {
      I found[MOST];
      for (int64_t slot = 0; slot < cells.side_count(cell); ++slot) {
        const int k = cells.nodes(cell, slot, found);
        visit(cell, cells.sides[cell] + slot, *std::min_element(found, found + k));
      }
    }
  };
  each_side([&](int64_t, int64_t, I low) { next[low + 1].fetch_add(1, std::memory_order_relaxed); });
  for (int64_t node = 0; node < n_nodes; ++node) next[node + 1] += next[node];
  each_side([&](int64_t cell, int64_t side, I low) {
    const int64_t place = next[low].fetch_add(1, std::memory_order_relaxed);
    numbers[place] = side;
    owners[place] = static_cast<I>(cell);
  });
  int64_t faults = 0;
#pragma omp parallel num_threads((int)threads) reduction(+ : faults)
  {
    std::vector<Side<I>> bucket;
#pragma omp for schedule(dynamic, 1024)
    for (int64_t node = 0; node < n_nodes; ++node) {
      const int64_t begin = node ? int64_t(next[node - 1]) : 0, end = next[node];  // each has moved on to the next one's
      bucket.clear();
      for (int64_t i = begin; i < end; ++i) {
        Side<I> side{{-1, -1, -1, -1}, numbers[i], owners[i]};
        const int64_t slot = side.number - cells.sides[side.cell];
        const int k = cells.nodes(side.cell, slot, side.key.data() + MOST - cells.size(side.cell, slot));
        std::sort(side.key.end() - k, side.key.end());
        bucket.push_back(side);
      }
      std::sort(bucket.begin(), bucket.end());
      for (size_t i = 0, j = 0; i < bucket.size(); i = j) {
        for (j = i + 1; j < bucket.size() && bucket[j].key == bucket[i].key;) ++j;
        const Side<I> &one = bucket[i], &other = bucket[j - 1];
        beyond[one.number] = j - i == 1 ? ALONE : static_cast<I>(other.cell);
        if (j - i == 1) continue;
        for (size_t same = i + 1; same < j; ++same) beyond[bucket[same].number] = SECOND;
        I a[MOST], b[MOST];
        const int k = cells.nodes(one.cell, one.number - cells.sides[one.cell], a);
        cells.nodes(other.cell, other.number - cells.sides[other.cell], b);
        faults += j - i > 2 || !opposite(a, b, k);
      }
    }
  }
  return faults;
}

struct Totals {
  int64_t faces = 0, nodes = 0, ends = 0, end_nodes = 0;
};

// What the cells from first to last add to the totals.
template <class I>
Totals totals_of(const Cells<I>& cells, const I* beyond, int64_t first, int64_t last) {
  Totals found;
  for (int64_t cell = first; cell < last; ++cell)
    for (int64_t slot = 0; slot < cells.side_count(cell); ++slot) {
      const I other = beyond[cells.sides[cell] + slot];
      if (other == SECOND) continue;
      ++(other == ALONE ? found.ends : found.faces);
      (other == ALONE ? found.end_nodes : found.nodes) += cells.size(cell, slot);
    }
  return found;
}

// Faces and boundary faces of matched sides: where the nodes of each start, these, and its cells. `at`: what comes
// before the cells from first to last.
template <class I>
void fill_faces(const Cells<I>& cells, const I* beyond, int64_t first, int64_t last, Totals at, int64_t* starts,
                I* nodes, I* pairs, int64_t* end_starts, I* end_nodes, I* singles) {
  for (int64_t cell = first; cell < last; ++cell)
    for (int64_t slot = 0; slot < cells.side_count(cell); ++slot) {
      const I other = beyond[cells.sides[cell] + slot];
      if (other == SECOND) continue;
      if (other == ALONE) {
        singles[at.ends] = static_cast<I>(cell);
        at.end_nodes += cells.nodes(cell, slot, end_nodes + at.end_nodes);
        end_starts[++at.ends] = at.end_nodes;
      } else {
        pairs[2 * at.faces] = static_cast<I>(cell);
        pairs[2 * at.faces + 1] = other;
        at.nodes += cells.nodes(cell, slot, nodes + at.nodes);
        starts[++at.faces] = at.nodes;
      }
    }
}

// Work on equal runs of cells, side by side: work(run, first cell, last cell).
template <class Work>
void in_runs(int64_t n, int64_t runs, Work work) {
#pragma omp parallel for schedule(static, 1) num_threads((int)runs)
  for (int64_t run = 0; run < runs; ++run) work(run, n * run / runs, n * (run + 1) / runs);
}

}  // namespace

extern "C" {

// totals, for each of `threads` runs of cells: faces, their nodes, boundary faces, their nodes; then the faults.
#define SIDES(suffix, I)                                                                                            \
  int match_sides_##suffix(const I* entries, const int64_t* starts, const int64_t* sides, const int8_t* kinds,      \
                           int64_t n, const int64_t* counts, const int64_t* sizes, const int64_t* local,            \
                           int64_t width, int64_t n_nodes, I* beyond, int64_t* totals, int64_t threads) {           \
    return guarded([&] {                                                                                            \
      const Cells<I> cells{entries, starts, sides, kinds, n, counts, sizes, local, width};                          \
      totals[4 * threads] = match_sides(cells, n_nodes, beyond, threads);                                           \
      in_runs(n, threads, [&](int64_t run, int64_t first, int64_t last) {                                           \
        const Totals found = totals_of(cells, beyond, first, last);                                                 \
        const int64_t row[4] = {found.faces, found.nodes, found.ends, found.end_nodes};                             \
        std::copy_n(row, 4, totals + 4 * run);                                                                      \
      });                                                                                                           \
    });                                                                                                             \
  }                                                                                                                 \
  int fill_faces_##suffix(const I* entries, const int64_t* starts, const int64_t* sides, const int8_t* kinds,       \
                          int64_t n, const int64_t* counts, const int64_t* sizes, const int64_t* local,             \
                          int64_t width, const I* beyond, const int64_t* before, int64_t threads,                   \
                          int64_t* face_starts, I* nodes, I* pairs, int64_t* end_starts, I* end_nodes,              \
                          I* singles) {                                                                             \
    return guarded([&] {                                                                                            \
      const Cells<I> cells{entries, starts, sides, kinds, n, counts, sizes, local, width};                          \
      in_runs(n, threads, [&](int64_t run, int64_t first, int64_t last) {                                           \
        const int64_t* at = before + 4 * run;                                                                       \
        fill_faces(cells, beyond, first, last, Totals{at[0], at[1], at[2], at[3]}, face_starts, nodes, pairs,       \
                   end_starts, end_nodes, singles);                                                                 \
      });                                                                                                           \
    });                                                                                                             \
  }
FOR_INDEX_TYPES(SIDES)

}  // extern "C"
