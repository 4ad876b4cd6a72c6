// Plan arrays of the block strategies: overlapped tiles, and targets that several blocks share.
//
// Tiles. Targets are cut into blocks of `block`; a tile is the ascending list of the elements incident to its
// targets, each once. A stamp per element says in which tile it was last seen, so a tile costs as much as its entries.
#include <algorithm>
#include <cstdint>

namespace {

template <class I>
int64_t make_tiles(const int64_t* offsets, const I* entries, int64_t targets, int64_t arity, int64_t block,
                   int64_t* stamp, I* number, int64_t* tile_offsets, I* tile_elements, I* local) {
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
  return used;
}

template <class I, class V>
void mark_shared(const int64_t* block_offsets, int64_t blocks, const V* visit, const I* indices, int64_t arity,
                 int64_t* block_of, uint8_t* shared) {
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t k = block_offsets[b]; k < block_offsets[b + 1]; ++k)
      for (int64_t s = 0; s < arity; ++s) {
        const I t = indices[(int64_t)visit[k] * arity + s];
        if (block_of[t] < 0) block_of[t] = b;
        else if (block_of[t] != b) shared[t] = 1;
      }
}

}  // namespace

extern "C" {
int64_t ml_tiles_32(const int64_t* o, const int32_t* e, int64_t t, int64_t a, int64_t b, int64_t* st, int32_t* nu,
                    int64_t* to, int32_t* te, int32_t* lo) { return make_tiles(o, e, t, a, b, st, nu, to, te, lo); }
int64_t ml_tiles_64(const int64_t* o, const int64_t* e, int64_t t, int64_t a, int64_t b, int64_t* st, int64_t* nu,
                    int64_t* to, int64_t* te, int64_t* lo) { return make_tiles(o, e, t, a, b, st, nu, to, te, lo); }
void ml_shared_32(const int64_t* bo, int64_t n, const int64_t* v, const int32_t* i, int64_t a, int64_t* w, uint8_t* s) {
  mark_shared(bo, n, v, i, a, w, s); }
void ml_shared_64(const int64_t* bo, int64_t n, const int64_t* v, const int64_t* i, int64_t a, int64_t* w, uint8_t* s) {
  mark_shared(bo, n, v, i, a, w, s); }
}
