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

// What is wrong with tiles, and the entries (element * arity + slot) that they stand for; offsets were looked at before.
enum { RIGHT, NO_ELEMENT, NOT_RISING, NOT_IN_TILE };
template <class I>
int64_t read_tiles(const int64_t* offsets, const int64_t* tile_offsets, const I* tile_elements, const I* local,
                   int64_t targets, int64_t elements, I arity, int64_t block, I* entries) {
  int64_t tile = 0;
  for (int64_t first = 0; first < targets; first += block, ++tile) {
    const I* listed = tile_elements + tile_offsets[tile];
    const int64_t count = tile_offsets[tile + 1] - tile_offsets[tile];
    for (int64_t k = 0; k < count; ++k) {
      if (listed[k] < 0 || listed[k] >= elements) return NO_ELEMENT;
      if (k > 0 && listed[k] <= listed[k - 1]) return NOT_RISING;
    }
    for (int64_t x = offsets[first]; x < offsets[std::min(first + block, targets)]; ++x) {
      const I place = local[x] / arity;
      if (local[x] < 0 || place >= count) return NOT_IN_TILE;
      entries[x] = listed[place] * arity + local[x] % arity;
    }
  }
  return RIGHT;
}

}  // namespace

#define EXPORT(I, NAME)                                                                                              \
  extern "C" int tiles_##NAME(const int64_t* o, const I* e, int64_t t, int64_t a, int64_t b, int64_t* st, I* nu,     \
                              int64_t* to, I* te, I* lo) {                                                           \
    return make_tiles(o, e, t, a, b, st, nu, to, te, lo);                                                            \
  }
EXPORT(int32_t, i32)
EXPORT(int64_t, i64)

#define READ(NAME, I)                                                                                                \
  extern "C" int read_tiles_##NAME(const int64_t* o, const int64_t* to, const I* te, const I* lo, int64_t t,         \
                                   int64_t n, int64_t a, int64_t b, I* e, int64_t* verdict) {                        \
    *verdict = read_tiles(o, to, te, lo, t, n, (I)a, b, e);                                                          \
    return OK;                                                                                                       \
  }
FOR_INDEX_TYPES(READ)
