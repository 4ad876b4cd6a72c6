// What blocks of elements add to: targets that several blocks share, targets of each block, partial sums of blocks.
#include <algorithm>
#include <cstdint>
#include <utility>

namespace {

template <class I>
int mark_shared(const int64_t* block_offsets, int64_t blocks, const int64_t* visit, const I* indices, int64_t arity,
                int64_t* block_of, uint8_t* shared) {
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t k = block_offsets[b]; k < block_offsets[b + 1]; ++k)
      for (int64_t s = 0; s < arity; ++s) {
        const I t = indices[visit[k] * arity + s];
        if (block_of[t] < 0) block_of[t] = b;
        else if (block_of[t] != b) shared[t] = 1;
      }
  return 0;
}

// The distinct targets of each block, ascending, and for each slot of each position its place among them.
template <class I>
int number_targets(const int64_t* block_offsets, int64_t blocks, const int64_t* visit, const I* indices, int64_t arity,
                   int64_t* stamp, I* number, int64_t* offsets, I* targets, I* local) {
  int64_t used = 0;
  offsets[0] = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t start = used;
    for (int64_t k = block_offsets[b]; k < block_offsets[b + 1]; ++k)
      for (int64_t s = 0; s < arity; ++s) {
        const I t = indices[visit[k] * arity + s];
        if (stamp[t] != b) {
          stamp[t] = b;
          targets[used++] = t;
        }
      }
    std::sort(targets + start, targets + used);
    for (int64_t k = start; k < used; ++k) number[targets[k]] = (I)(k - start);
    for (int64_t k = block_offsets[b]; k < block_offsets[b + 1]; ++k)
      for (int64_t s = 0; s < arity; ++s) local[k * arity + s] = number[indices[visit[k] * arity + s]];
    offsets[b + 1] = used;
  }
  return 0;
}

// Partial sums. Of each block of `block` positions the distinct targets, ascending in `place`; from `starts` on (one more
// entry for each block) the incidences of each of them in `local`: place of the element in the block * arity + slot. Then
// a `shared` target of a block becomes -1 - row: rows go by target, those of a target by block, and end at `row_ends`.
template <class I>
int sum_blocks(int64_t elements, int64_t block, const int64_t* visit, const I* indices, int64_t arity, int64_t targets,
               const uint8_t* shared, int64_t* stamp, int64_t* next, int64_t* own_offsets, I* place, I* starts, I* local,
               int64_t* row_ends) {
  int64_t used = 0, b = 0;
  own_offsets[0] = 0;
  for (int64_t first = 0; first < elements; first += block, ++b) {
    const int64_t last = std::min(first + block, elements), own = used;
    for (int64_t k = first; k < last; ++k)
      for (int64_t s = 0; s < arity; ++s) {
        const I t = indices[visit[k] * arity + s];
        if (stamp[t] != b) {
          stamp[t] = b;
          next[t] = 0;
          place[used++] = t;
        }
        ++next[t];
      }
    std::sort(place + own, place + used);
    int64_t begin = 0;
    for (int64_t k = own; k < used; ++k) {
      starts[k + b] = (I)begin;
      begin += std::exchange(next[place[k]], begin);
    }
    starts[used + b] = (I)begin;
    for (int64_t k = first; k < last; ++k)
      for (int64_t s = 0; s < arity; ++s)
        local[first * arity + next[indices[visit[k] * arity + s]]++] = (I)((k - first) * arity + s);
    own_offsets[b + 1] = used;
  }
  for (int64_t k = 0; k < used; ++k)
    if (shared[place[k]]) ++row_ends[place[k]];
  for (int64_t t = 0, row = 0; t < targets; ++t) row += std::exchange(row_ends[t], row);
  for (int64_t k = 0; k < used; ++k)
    if (shared[place[k]]) place[k] = (I)(-1 - row_ends[place[k]]++);
  return 0;
}

// What is wrong with the entries of partial sums: `counts` of them at each place, whose target is `listed`, as many in a
// block as its elements give through `slots` slots. `packed`: which of these a slot is, -1 for others. `stamp`: room for
// the entries of a block, -1 at first.
enum { RIGHT, OUTSIDE, DOUBLED, NOT_RISING, ELSEWHERE };
template <class I>
int64_t wrong_sums(int64_t elements, int64_t block, const int64_t* visit, const I* indices, I arity,
                   const int64_t* packed, int64_t slots, const int64_t* own_offsets, const int64_t* listed,
                   const int64_t* counts, const I* local, int64_t* stamp) {
  int64_t b = 0, x = 0;
  for (int64_t first = 0; first < elements; first += block, ++b) {
    const int64_t length = std::min(block, elements - first);
    bool doubled = false, falling = false, elsewhere = false;
    for (int64_t p = own_offsets[b]; p < own_offsets[b + 1]; ++p) {
      const int64_t begin = x;
      for (; x < begin + counts[p]; ++x) {
        const I element = local[x] / arity, slot = local[x] % arity;
        if (local[x] < 0 || element >= length || packed[slot] < 0) return OUTSIDE;
        doubled |= std::exchange(stamp[element * slots + packed[slot]], b) == b;
        falling |= x > begin && local[x] <= local[x - 1];
        elsewhere |= indices[visit[first + element] * arity + slot] != listed[p];
      }
    }
    if (doubled) return DOUBLED;
    if (falling) return NOT_RISING;
    if (elsewhere) return ELSEWHERE;
  }
  return RIGHT;
}

}  // namespace

#define EXPORT(I, NAME)                                                                                              \
  extern "C" int shared_##NAME(const int64_t* bo, int64_t n, const int64_t* v, const I* i, int64_t a, int64_t* w,    \
                               uint8_t* s) {                                                                         \
    return mark_shared(bo, n, v, i, a, w, s);                                                                        \
  }                                                                                                                  \
  extern "C" int numbers_##NAME(const int64_t* bo, int64_t n, const int64_t* v, const I* i, int64_t a, int64_t* st,  \
                                I* nu, int64_t* of, I* ta, I* lo) {                                                  \
    return number_targets(bo, n, v, i, a, st, nu, of, ta, lo);                                                       \
  }                                                                                                                  \
  extern "C" int sums_##NAME(int64_t n, int64_t b, const int64_t* v, const I* i, int64_t a, int64_t t,               \
                             const uint8_t* sh, int64_t* st, int64_t* ne, int64_t* of, I* pl, I* be, I* lo,          \
                             int64_t* re) {                                                                          \
    return sum_blocks(n, b, v, i, a, t, sh, st, ne, of, pl, be, lo, re);                                             \
  }
EXPORT(int32_t, i32)
EXPORT(int64_t, i64)

#define WRONG_SUMS(NAME, I)                                                                                          \
  extern "C" int wrong_sums_##NAME(int64_t n, int64_t b, const int64_t* v, const I* i, int64_t a, const int64_t* pa, \
                                   int64_t s, const int64_t* of, const int64_t* li, const int64_t* co, const I* lo,  \
                                   int64_t* st, int64_t* verdict) {                                                  \
    *verdict = wrong_sums(n, b, v, i, (I)a, pa, s, of, li, co, lo, st);                                              \
    return OK;                                                                                                       \
  }
FOR_INDEX_TYPES(WRONG_SUMS)
