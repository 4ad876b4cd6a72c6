// Algorithms behind the plans: incidence, greedy colorings, greedy growing of blocks, data touched per block.
// Sizes and offsets are int64; indices are I = int32 or int64. Inputs were checked by the Python side.

namespace {

// Counting sort of the slots e*arity+s by target: two linear passes, ascending within each target.
template <class I, class E>
void incidence(const I* indices, int64_t n_slots, int64_t n_targets, int64_t* offsets, E* entries) {
  std::fill_n(offsets, n_targets + 1, 0);
  for (int64_t i = 0; i < n_slots; ++i) ++offsets[indices[i] + 1];
  std::partial_sum(offsets, offsets + n_targets + 1, offsets);
  std::vector<int64_t> next(offsets, offsets + n_targets);
  for (int64_t i = 0; i < n_slots; ++i) entries[next[indices[i]]++] = static_cast<E>(i);
}

// What is wrong with an incidence whose offsets run from 0 to the number of slots: nothing, an entry out of bounds, one
// under another target than it leads to, or entries that do not rise. Those that rise and stand in their places are
// all different, and as many as there are slots: each is there once.
constexpr int64_t RIGHT = 0, OUT_OF_BOUNDS = 1, ELSEWHERE = 2, NOT_RISING = 3;

template <class I, class E>
int64_t wrong_incidence(const I* indices, int64_t n_slots, int64_t n_targets, const int64_t* offsets, const E* entries) {
  int64_t worst = RIGHT;
  for (int64_t t = 0; t < n_targets; ++t)
    for (int64_t k = offsets[t]; k < offsets[t + 1]; ++k) {
      if (entries[k] < 0 || entries[k] >= n_slots) return OUT_OF_BOUNDS;
      if (indices[entries[k]] != t) worst = ELSEWHERE;
      else if (k > offsets[t] && entries[k] <= entries[k - 1] && worst == RIGHT) worst = NOT_RISING;
    }
  return worst;
}

// Several maps from the same elements, each into a target space of its own, with 64 colors' bits per target.
template <class I>
struct MaskedMaps {
  struct One {
    const I* indices;
    int64_t arity;
    std::vector<uint64_t> masks;
  };
  std::vector<One> maps;

  MaskedMaps(int64_t count, const I* const* indices, const int64_t* arities, const int64_t* n_targets) {
    for (int64_t m = 0; m < count; ++m) maps.push_back({indices[m], arities[m], std::vector<uint64_t>(n_targets[m])});
  }

  template <class Visit>
  void each_mask(int64_t element, Visit visit) {
    for (One& map : maps) {
      const I* row = map.indices + element * map.arity;
      for (int64_t s = 0; s < map.arity; ++s) visit(map.masks[row[s]]);
    }
  }
};

// Greedy coloring of items (elements, or blocks of them) in the order of `waiting`: each gets the smallest color that
// no earlier item with a common target has. A target's mask holds 64 colors, so a pass can give 64; an item that finds
// them all taken waits for the next pass, which offers the next 64. The outcome is that of one pass with endless
// masks: what a pass gives depends on earlier items only, and a waiting item takes no color below the pass's last.
// each_element(item, visit) visits the elements of an item. Masks need no clearing outside: an item's are cleared here.
template <class I, class EachElement>
void color_items(MaskedMaps<I>& maps, std::vector<int64_t>& waiting, EachElement each_element, int32_t* colors) {
  for (int32_t base = 0; !waiting.empty(); base += 64) {
    for (int64_t item : waiting)
      each_element(item, [&](int64_t e) { maps.each_mask(e, [](uint64_t& mask) { mask = 0; }); });
    size_t left = 0;
    for (int64_t item : waiting) {
      uint64_t used = 0;
      each_element(item, [&](int64_t e) { maps.each_mask(e, [&](uint64_t mask) { used |= mask; }); });
      if (used == ~uint64_t(0)) {
        waiting[left++] = item;
        continue;
      }
      const int color = __builtin_ctzll(~used);
      const uint64_t bit = uint64_t(1) << color;
      each_element(item, [&](int64_t e) { maps.each_mask(e, [&](uint64_t& mask) { mask |= bit; }); });
      colors[item] = base + color;
    }
    waiting.resize(left);
  }
}

template <class I>
void color_elements(int64_t n, MaskedMaps<I> maps, int32_t* colors) {
  std::vector<int64_t> waiting(n);
  std::iota(waiting.begin(), waiting.end(), 0);
  color_items(maps, waiting, [](int64_t item, auto visit) { visit(item); }, colors);
}

template <class I>
void color_blocks(int64_t n_blocks, const int64_t* offsets, const int64_t* order, MaskedMaps<I> maps,
                  int32_t* colors) {
  std::vector<int64_t> waiting(n_blocks);
  std::iota(waiting.begin(), waiting.end(), 0);
  const auto each_element = [&](int64_t block, auto visit) {
    for (int64_t i = offsets[block]; i < offsets[block + 1]; ++i) visit(order[i]);
  };
  color_items(maps, waiting, each_element, colors);
}

// colors[e] for element e; a block costs as much as it has slots, whatever the number of targets.
template <class I>
void thread_colors(int64_t n_blocks, const int64_t* offsets, const int64_t* order, MaskedMaps<I> maps,
                   int32_t* colors) {
  std::vector<int64_t> waiting;
  for (int64_t block = 0; block < n_blocks; ++block) {
    waiting.assign(order + offsets[block], order + offsets[block + 1]);
    color_items(maps, waiting, [](int64_t item, auto visit) { visit(item); }, colors);
  }
}

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

#define INCIDENCE(suffix, I)                                                                                          \
  int incidence32_##suffix(const I* indices, int64_t n_slots, int64_t n_targets, int64_t* offsets, int32_t* entries) { \
    return guarded([&] { incidence(indices, n_slots, n_targets, offsets, entries); });                                \
  }                                                                                                                   \
  int incidence64_##suffix(const I* indices, int64_t n_slots, int64_t n_targets, int64_t* offsets, int64_t* entries) { \
    return guarded([&] { incidence(indices, n_slots, n_targets, offsets, entries); });                                \
  }
FOR_INDEX_TYPES(INCIDENCE)

#define WRONG_INCIDENCE(suffix, I)                                                                                \
  int wrong_incidence32_##suffix(const I* indices, int64_t n_slots, int64_t n_targets, const int64_t* offsets,     \
                                 const int32_t* entries, int64_t* verdict) {                                      \
    *verdict = wrong_incidence(indices, n_slots, n_targets, offsets, entries);                                    \
    return OK;                                                                                                    \
  }                                                                                                               \
  int wrong_incidence64_##suffix(const I* indices, int64_t n_slots, int64_t n_targets, const int64_t* offsets,     \
                                 const int64_t* entries, int64_t* verdict) {                                      \
    *verdict = wrong_incidence(indices, n_slots, n_targets, offsets, entries);                                    \
    return OK;                                                                                                    \
  }
FOR_INDEX_TYPES(WRONG_INCIDENCE)

#define COLOR_ELEMENTS(suffix, I)                                                                            \
  int color_elements_##suffix(int64_t n, int64_t n_maps, const I* const* maps, const int64_t* arities,       \
                              const int64_t* n_targets, int32_t* colors) {                                   \
    return guarded([&] { color_elements(n, MaskedMaps<I>(n_maps, maps, arities, n_targets), colors); });     \
  }
FOR_INDEX_TYPES(COLOR_ELEMENTS)

#define COLOR_BLOCKS(suffix, I)                                                                                        \
  int color_blocks_##suffix(int64_t n_blocks, const int64_t* offsets, const int64_t* order, int64_t n_maps,            \
                            const I* const* maps, const int64_t* arities, const int64_t* n_targets, int32_t* colors) { \
    return guarded(                                                                                                    \
        [&] { color_blocks(n_blocks, offsets, order, MaskedMaps<I>(n_maps, maps, arities, n_targets), colors); });     \
  }                                                                                                                    \
  int thread_colors_##suffix(int64_t n_blocks, const int64_t* offsets, const int64_t* order, int64_t n_maps,           \
                             const I* const* maps, const int64_t* arities, const int64_t* n_targets,                   \
                             int32_t* colors) {                                                                        \
    return guarded(                                                                                                    \
        [&] { thread_colors(n_blocks, offsets, order, MaskedMaps<I>(n_maps, maps, arities, n_targets), colors); });    \
  }
FOR_INDEX_TYPES(COLOR_BLOCKS)

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
