// Greedy colorings of elements and of blocks.
// Sizes and offsets are int64; indices are I = int32 or int64. Inputs were checked by the Python side.

namespace {

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

}  // namespace

extern "C" {

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

}  // extern "C"
