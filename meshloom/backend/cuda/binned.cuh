//@ binned.hpp
#ifndef ML_REDUCES_LANES
template <int LANES> ML_FUNCTION int ml_largest_of_lanes(int a) {
  for (int h = LANES / 2; h > 0; h >>= 1) a = ml_max(a, ml_lane(a, h));
  return a;
}
template <int LANES> ML_FUNCTION int ml_bits_of_lanes(int a) {
  for (int h = LANES / 2; h > 0; h >>= 1) a |= ml_lane(a, h);
  return a;
}
template <int LANES> ML_FUNCTION int64_t ml_sum_of_lanes(int64_t a) {
  for (int h = LANES / 2; h > 0; h >>= 1) a += ml_lane(a, h);
  return a;
}
#endif
// The shares of all lanes of a warp, known to each: with bins of the largest summand, whole numbers are all that is left
// to add. Merged two by two, every step would look for the larger one again.
template <int LANES> ML_FUNCTION ml_binned ml_merged_lanes(ml_binned a) {
  ml_make_bins(a, ml_largest_of_lanes<LANES>(a.top));
  a.marks = ml_bits_of_lanes<LANES>(a.marks);
  for (int k = 0; k < 3; ++k) a.units[k] = ml_sum_of_lanes<LANES>(a.units[k]);
  return a;
}
