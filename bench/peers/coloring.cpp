// Algorithms 3 and 4 of the graph-coloring paper, as it prints them (with its misprints put right): the list of faces
// that conflict with each face, and greedy coloring along these lists.
//
// Of cell c the faces are entries[offsets[c]] / 2 .. : 2 * face + side, ascending. `owner` and `neighbor` lie side by
// side in `pairs`.
#include <cstdint>

extern "C" {

// Algorithm 3, first half: where the list of each face begins (faces + 1 of them); gives the length of all.
int64_t conflict_starts(int64_t faces, const int32_t* pairs, const int64_t* offsets, int64_t* starts) {
  starts[0] = 0;
  for (int64_t f = 0; f < faces; ++f) {
    int64_t count = 0;
    for (int side = 0; side < 2; ++side) {
      const int32_t cell = pairs[2 * f + side];
      count += offsets[cell + 1] - offsets[cell] - 1;
    }
    starts[f + 1] = starts[f] + count;
  }
  return starts[faces];
}

// Algorithm 3, second half: the other faces of the owner, then the other faces of the neighbor.
void conflict_lists(int64_t faces, const int32_t* pairs, const int64_t* offsets, const int32_t* entries,
                    const int64_t* starts, int32_t* list) {
#pragma omp parallel for schedule(static)
  for (int64_t f = 0; f < faces; ++f) {
    int64_t at = starts[f];
    for (int side = 0; side < 2; ++side) {
      const int32_t cell = pairs[2 * f + side];
      for (int64_t x = offsets[cell]; x < offsets[cell + 1]; ++x)
        if (entries[x] / 2 != f) list[at++] = entries[x] / 2;
    }
  }
}

// Algorithm 4: faces in order, each takes the smallest color that no face of its list has. At most 64 colors.
void color_by_lists(int64_t faces, const int64_t* starts, const int32_t* list, int32_t* colors) {
  for (int64_t f = 0; f < faces; ++f) colors[f] = -1;
  for (int64_t f = 0; f < faces; ++f) {
    uint64_t taken = 0;
    for (int64_t x = starts[f]; x < starts[f + 1]; ++x)
      if (colors[list[x]] >= 0) taken |= uint64_t(1) << colors[list[x]];
    colors[f] = __builtin_ctzll(~taken);
  }
}
}
