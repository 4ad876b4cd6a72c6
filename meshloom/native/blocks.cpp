// Greedy growing of blocks, and the data that blocks touch.
// Sizes and offsets are int64; indices are I = int32 or int64. Inputs were checked by the Python side.

namespace {

// Greedy growing of blocks of exactly `block` elements (the last one takes the rest).
//
// A block takes, among the untaken elements that touch a target already in it, always one that brings the fewest new
// targets, the oldest first: one queue per number of missing targets. For edges that is: first edges with both cells
// in the block, then edges with one. A new block starts from the oldest element that an earlier block reached but left,
// so no holes stay behind; where there is none (start, or a new component), from the next of `seeds`.
//
// A target offers at most 4*block of its untaken elements per block, so that a hub touched by everything costs linear
// time; its other elements remain candidates through their other targets and as seeds.
template <class I>
class Growth {
 public:
  Growth(Relation<I> targets_of, Relation<I> elements_of, int64_t n_elements, int64_t n_targets, int64_t block_size)
      : to_targets(targets_of), to_elements(elements_of), n(n_elements), block(block_size), reached(n_targets, -1),
        untaken_from(n_targets), taken(n, 0), left_over(n, 0), touched(n, -1), missing(n) {
    for (int64_t t = 0; t < n_targets; ++t) untaken_from[t] = to_elements.begin(t);
  }

  void run(const int64_t* seeds, int64_t* order) {
    int64_t next_seed = 0, next_frontier = 0;
    for (int64_t done = 0; done < n; ++done) {
      if (done % block == 0) start_block(done / block);
      int64_t element = best_candidate();
      while (element < 0 && next_frontier < int64_t(frontier.size())) element = untaken(frontier[next_frontier++]);
      while (element < 0) element = untaken(seeds[next_seed++]);
      take(element);
      order[done] = element;
    }
  }

 private:
  static constexpr int QUEUES = 16;  // more missing targets than this are all the same
  struct Queue {
    std::vector<I> items;
    size_t head = 0;
  };

  Relation<I> to_targets, to_elements;
  int64_t n, block;
  int64_t current = -1;                 // number of the block being filled
  std::vector<int64_t> reached;         // per target: last block that holds it
  std::vector<int64_t> untaken_from;    // per target: everything before was taken
  std::vector<uint8_t> taken, left_over;
  std::vector<int64_t> touched;         // per element: last block for which `missing` counts
  std::vector<I> missing;               // per element: slots whose target is not in that block
  std::vector<I> frontier;
  Queue queues[QUEUES];

  int64_t untaken(int64_t element) const { return taken[element] ? -1 : element; }

  static int queue_of(I missing) { return static_cast<int>(std::min<I>(missing, QUEUES - 1)); }

  void start_block(int64_t number) {
    for (Queue& queue : queues) {
      for (size_t i = queue.head; i < queue.items.size(); ++i) {
        const I element = queue.items[i];
        if (taken[element] || left_over[element]) continue;
        left_over[element] = 1;
        frontier.push_back(element);
      }
      queue.items.clear();
      queue.head = 0;
    }
    current = number;
  }

  // Entries whose element moved to a lower queue, or was taken, are stale and skipped.
  int64_t best_candidate() {
    for (int q = 0; q < QUEUES; ++q) {
      Queue& queue = queues[q];
      while (queue.head < queue.items.size()) {
        const I element = queue.items[queue.head++];
        if (!taken[element] && queue_of(missing[element]) == q) return element;
      }
    }
    return -1;
  }

  void take(int64_t element) {
    taken[element] = 1;
    for (int64_t i = to_targets.begin(element); i < to_targets.end(element); ++i) {
      const I target = to_targets[i];
      if (reached[target] == current) continue;
      reached[target] = current;
      offer_elements_of(target);
    }
  }

  void offer_elements_of(I target) {
    const int64_t end = to_elements.end(target);
    int64_t& start = untaken_from[target];
    while (start < end && taken[to_elements[start]]) ++start;
    int64_t offers = 4 * block, last = -1;
    for (int64_t i = start; i < end; ++i) {
      const I element = to_elements[i];
      if (taken[element]) continue;
      if (element != last && offers-- == 0) break;  // one that touches the target twice is offered once
      last = element;
      const bool fresh = touched[element] != current;
      if (fresh) {
        touched[element] = current;
        missing[element] = static_cast<I>(to_targets.size(element));
      }
      const int before = queue_of(missing[element]), now = queue_of(--missing[element]);
      if (fresh || now != before) queues[now].items.push_back(element);
    }
  }
};

// Per block: how many different lines of `line` bytes the rows (of `row` bytes) of its targets lie on.
template <class I>
void lines_touched(int64_t n_blocks, const int64_t* offsets, const int64_t* order, const I* indices, int64_t arity,
                   int64_t n_targets, int64_t row, int64_t line, int64_t* counts) {
  std::vector<int64_t> seen((n_targets * row + line - 1) / line, -1);
  for (int64_t block = 0; block < n_blocks; ++block) {
    counts[block] = 0;
    for (int64_t i = offsets[block]; i < offsets[block + 1]; ++i)
      for (int64_t s = 0; s < arity; ++s) {
        const int64_t start = int64_t(indices[order[i] * arity + s]) * row;
        for (int64_t l = start / line; l <= (start + row - 1) / line; ++l)
          if (seen[l] != block) {
            seen[l] = block;
            ++counts[block];
          }
      }
  }
}

}  // namespace

extern "C" {

// The elements to be blocked are the rows of the map (`of_targets` 0) or its targets (1, blocks that share few rows).
#define GROW_BLOCKS(suffix, I)                                                                                    \
  int grow_blocks_##suffix(const I* indices, int64_t n_rows, int64_t arity, int64_t n_targets,                    \
                           const int64_t* offsets, const I* entries, int64_t block, const int64_t* seeds,         \
                           int64_t of_targets, int64_t* order) {                                                  \
    return guarded([&] {                                                                                          \
      const Relation<I> rows{nullptr, arity, indices, 1}, incident{offsets, 0, entries, static_cast<I>(arity)};   \
      if (of_targets) Growth<I>(incident, rows, n_targets, n_rows, block).run(seeds, order);                      \
      else Growth<I>(rows, incident, n_rows, n_targets, block).run(seeds, order);                                 \
    });                                                                                                           \
  }
FOR_INDEX_TYPES(GROW_BLOCKS)

#define LINES_TOUCHED(suffix, I)                                                                                      \
  int lines_touched_##suffix(int64_t n_blocks, const int64_t* offsets, const int64_t* order, const I* indices,        \
                             int64_t arity, int64_t n_targets, int64_t row, int64_t line, int64_t* counts) {          \
    return guarded(                                                                                                   \
        [&] { lines_touched(n_blocks, offsets, order, indices, arity, n_targets, row, line, counts); });              \
  }
FOR_INDEX_TYPES(LINES_TOUCHED)

}  // extern "C"
