//@ binned.hpp
// Shares are merged many at a time: room for the largest of all is made once in each, then only whole numbers are added.
// Those of the threads of a warp; every thread of the block must ask.
ML_FUNCTION void ml_merge_lanes(ml_binned& a, int lanes) {
  int top = a.top;
  for (int h = lanes / 2; h > 0; h >>= 1) {
    const int other = ml_lane(top, h);
    top = top < other ? other : top;
    a.marks |= ml_lane(a.marks, h);
  }
  ml_make_bins(a, top);
  for (int h = lanes / 2; h > 0; h >>= 1)
#pragma unroll
    for (int k = 0; k < 3; ++k) a.units[k] += ml_lane(a.units[k], h);
}
ML_FUNCTION ml_binned ml_merged(const ml_binned* shares, int count) {
  ml_binned all = ml_binned();
  for (int w = 0; w < count; ++w) all.top = all.top < shares[w].top ? shares[w].top : all.top;
  for (int w = 0; w < count; ++w) {
    ml_binned one = shares[w];
    ml_make_bins(one, all.top);
    all.marks |= one.marks;
#pragma unroll
    for (int k = 0; k < 3; ++k) all.units[k] += one.units[k];
  }
  return all;
}
