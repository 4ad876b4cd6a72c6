// Overlapped tiles: targets are cut into blocks of `block`; a tile is the ascending list of the elements incident to its
// targets, each once. A stamp per element says in which tile it was last seen, so a tile costs as much as its entries.
#include <algorithm>
#include <cstdint>

namespace {

template <class I>
int make_tiles(const int64_t* offsets, const I* entries, int64_t targets, int64_t arity, int64_t block, int64_t* stamp,
               I* number, int64_t* tile_offsets, I* tile_elements, I* local) {
  int64_t used = 0, tile = 0;
  tile_offsets[0] = 0;
  for (int64_t first = 0; first < targets; first += block, ++tile) {
    const int64_t last = std::min(first + block, targets), start = used;
    for (int64_t x = offsets[first]; x < offsets[last]; ++x) {
      const int64_t e = entries[x] / (I)arity;
      if (stamp[e] != tile) {
        stamp[e] = tile;
        tile_elements[used++] = (I)e;
      }
    }
    std::sort(tile_elements + start, tile_elements + used);
    for (int64_t k = start; k < used; ++k) number[tile_elements[k]] = (I)(k - start);
    for (int64_t x = offsets[first]; x < offsets[last]; ++x)
      local[x] = (I)(number[entries[x] / (I)arity] * arity + entries[x] % (I)arity);
    tile_offsets[tile + 1] = used;
  }
  return 0;
}

}  // namespace

#define EXPORT(I, NAME)                                                                                              \
  extern "C" int tiles_##NAME(const int64_t* o, const I* e, int64_t t, int64_t a, int64_t b, int64_t* st, I* nu,     \
                              int64_t* to, I* te, I* lo) {                                                           \
    return make_tiles(o, e, t, a, b, st, nu, to, te, lo);                                                            \
  }
EXPORT(int32_t, i32)
EXPORT(int64_t, i64)
