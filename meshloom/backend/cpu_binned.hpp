//@ binned.hpp
// Many summands, of which the largest makes the bins before the first is cut: both loops are vectorised. Next to the ends
// of the range, where C is no number any more, and for what cannot be added they go one by one.
inline void ml_deposit_all(ml_binned& a, const double* x, int64_t count) {
  int64_t largest = 0;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t size = ml_bits_of(x[k]) & INT64_MAX;
    largest = size > largest ? size : largest;
  }
  const int exponent = (int)(largest >> 52);
  const bool is_sum = largest != 0 && exponent != 0x7ff;
  if (is_sum) ml_make_bins(a, ml_bin_of(exponent));
  if (!is_sum || a.top < 3 || a.top > 68) {
    for (int64_t k = 0; k < count; ++k) ml_deposit(a, x[k]);
    return;
  }
  const ml_cuts C = ml_cut_places(30 * a.top - 1080);
  uint64_t high = 0, middle = 0, low = 0;  // with the bits of C, which come off all at once: both wrap round
  for (int64_t k = 0; k < count; ++k) {
    const ml_cuts c = ml_cut(x[k], C);
    high += (uint64_t)ml_bits_of(c.high);
    middle += (uint64_t)ml_bits_of(c.middle);
    low += (uint64_t)ml_bits_of(c.low);
  }
  a.units[0] += (int64_t)(high - (uint64_t)count * (uint64_t)ml_bits_of(C.high));
  a.units[1] += (int64_t)(middle - (uint64_t)count * (uint64_t)ml_bits_of(C.middle));
  a.units[2] += (int64_t)(low - (uint64_t)count * (uint64_t)ml_bits_of(C.low));
}
