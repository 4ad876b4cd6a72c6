// Sums that have the same bits in any order. Bin j counts units of 2^(30 j - 1080). The three bins from that of the
// largest summand down count: a summand is rounded to a whole number of units of the last of them, to nearest even, which
// three cuts (x + C) - C do exactly. A summand is in the first bin of which it has less than 2^29 units, less than half a
// unit of the next: so every cut is that of the summand itself, whatever is in the bins, and making room for a larger one
// leaves away whole bins. All that is added are whole numbers, which are exact in any order.
struct ml_binned {
  int32_t top;      // the bin of the largest summand, at least 2; 0 where all of them were zeros
  int32_t marks;    // what else was among them
  int64_t units[3]; // of the top bin and the two below it; each summand has at most 2^29
};
enum { ML_PLUS_ZERO = 1, ML_INFINITE = 2, ML_MINUS_INFINITE = 4, ML_NOT_A_NUMBER = 8 };
ML_FUNCTION int64_t ml_bits_of(double a) { union { double value; int64_t bits; } u; u.value = a; return u.bits; }
ML_FUNCTION double ml_power_of_two(int exponent) {
  union { double value; int64_t bits; } u;
  u.bits = (int64_t)(exponent + 1023) << 52;
  return u.value;
}
ML_FUNCTION int ml_exponent_bits(double a) { return (int)(ml_bits_of(a) >> 52) & 0x7ff; }
ML_FUNCTION int ml_bin_of(int exponent) { return exponent + 58 < 90 ? 2 : (exponent + 58) / 30; }
// The root of what makes the unit of the last bin one: applied twice it is exact, down to denormal summands.
ML_FUNCTION double ml_bin_scale(int top) { return ml_power_of_two(570 - 15 * top); }
ML_FUNCTION void ml_make_bins(ml_binned& a, int top) {  // room for larger summands
  const int by = top - a.top;
  if (by <= 0) return;
  a.units[2] = by == 1 ? a.units[1] : by == 2 ? a.units[0] : 0;
  a.units[1] = by == 1 ? a.units[0] : 0;
  a.units[0] = 0;
  a.top = top;
}
struct ml_cuts { double high, middle, low; };
// 1.5 * 2^52 units of each bin, where the unit of the top one is 2^exponent.
ML_FUNCTION ml_cuts ml_cut_places(int exponent) {
  const double high = 1.5 * ml_power_of_two(exponent + 52);
  return {high, high * 0x1p-30, high * 0x1p-60};
}
// What each bin gets of a summand, behind the bits of C: y + C has those of both.
ML_FUNCTION ml_cuts ml_cut(double y, ml_cuts C) {
  ml_cuts c;
  c.high = y + C.high;
  y = y - (c.high - C.high);
  c.middle = y + C.middle;
  y = y - (c.middle - C.middle);
  c.low = y + C.low;
  return c;
}
ML_FUNCTION void ml_deposit(ml_binned& a, double x) {
  const int exponent = ml_exponent_bits(x), above = 30 * a.top - 28;
  if (exponent >= (above < 0x7ff ? above : 0x7ff)) {  // the first one, a larger one, or none that can be added
    if (exponent == 0x7ff) {
      a.marks |= x != x ? ML_NOT_A_NUMBER : x > 0 ? ML_INFINITE : ML_MINUS_INFINITE;
      return;
    }
    if (x == 0) {
      a.marks |= ml_bits_of(x) == 0 ? ML_PLUS_ZERO : 0;
      return;
    }
    ml_make_bins(a, ml_bin_of(exponent));
  }
  const double scale = ml_bin_scale(a.top);
  const ml_cuts C = ml_cut_places(60), c = ml_cut(x * scale * scale, C);
  a.units[0] += ml_bits_of(c.high) - ml_bits_of(C.high);
  a.units[1] += ml_bits_of(c.middle) - ml_bits_of(C.middle);
  a.units[2] += ml_bits_of(c.low) - ml_bits_of(C.low);
}
ML_FUNCTION ml_binned ml_merged(ml_binned a, ml_binned b) {
  ml_make_bins(a, b.top);
  ml_make_bins(b, a.top);
  a.marks |= b.marks;
  for (int k = 0; k < 3; ++k) a.units[k] += b.units[k];
  return a;
}
template <class T> ML_FUNCTION void ml_keep(T* to, ml_binned a) { *(ml_binned*)to = a; }
template <class T> struct ml_digits;  // of a number, and the exponent of the smallest
template <> struct ml_digits<double> { enum { COUNT = 53, LEAST = -1074 }; };
template <> struct ml_digits<float> { enum { COUNT = 24, LEAST = -149 }; };
// What is no number, by its bits: a GPU's own NAN has others.
ML_FUNCTION double ml_none(double) {
  union { double value; int64_t bits; } u;
  u.bits = INT64_C(0x7ff8000000000000);
  return u.value;
}
ML_FUNCTION float ml_none(float) { union { float value; int32_t bits; } u; u.bits = 0x7fc00000; return u.value; }
// The total with one more summand, to nearest even; of zeros alone as IEEE 754 adds them.
template <class T> ML_FUNCTION T ml_rounded(ml_binned a, T before) {
  ml_deposit(a, (double)before);
  const int infinite = a.marks & (ML_INFINITE | ML_MINUS_INFINITE);
  if (a.marks & ML_NOT_A_NUMBER || infinite == (ML_INFINITE | ML_MINUS_INFINITE)) return ml_none(before);
  if (infinite) return infinite == ML_INFINITE ? (T)INFINITY : -(T)INFINITY;
  const int64_t mask = (INT64_C(1) << 30) - 1;
  int64_t high = a.units[0], middle = a.units[1], low = a.units[2];
  middle += low >> 30; low &= mask;
  high += middle >> 30; middle &= mask;
  const bool negative = high < 0;
  if (negative) {
    low = -low; middle = -middle + (low >> 30); low &= mask;
    high = -high + (middle >> 30); middle &= mask;
  }
  // Size: 2^60 times the first and the second, of 60 bits. Shifted until the first has 63 bits, and all that matters.
  uint64_t first = (uint64_t)high, second = (uint64_t)middle << 30 | (uint64_t)low;
  if (first == 0 && second == 0) return a.top == 0 && !(a.marks & ML_PLUS_ZERO) ? -(T)0 : (T)0;
  int exponent = 30 * (a.top - 2) - 1080 + 60;
  if (first == 0) { first = second; second = 0; exponent -= 60; }
  for (int by = 32; by > 0; by /= 2)
    if (first >> (63 - by) == 0) {
      first = first << by | second >> (60 - by);
      second = second << by & ((UINT64_C(1) << 60) - 1);
      exponent -= by;
    }
  first |= second != 0;
  const int below = ml_digits<T>::LEAST - exponent, usual = 63 - ml_digits<T>::COUNT;
  const int dropped = below > usual ? below : usual;
  const uint64_t half = UINT64_C(1) << (dropped - 1), rest = first & (2 * half - 1);
  uint64_t digits = first >> dropped;
  digits += rest > half || (rest == half && (digits & 1));
  exponent += dropped;
  const double size = (double)digits * ml_power_of_two(exponent / 2) * ml_power_of_two(exponent - exponent / 2);
  return (T)(negative ? -size : size);
}
