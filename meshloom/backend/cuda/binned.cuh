//@ binned.hpp
ML_FUNCTION ml_binned ml_lane(ml_binned a, int mask) {
  ml_binned other;
  other.top = ml_lane(a.top, mask);
  other.marks = ml_lane(a.marks, mask);
  for (int k = 0; k < 3; ++k) other.units[k] = ml_lane(a.units[k], mask);
  return other;
}
