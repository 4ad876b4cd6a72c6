// NumPy's meaning of operations that C spells otherwise or leaves open: the same text for every compiled back end.
// a*b + c in one rounding where generated text says so, and nowhere else: compilers may not contract, since they do it
// otherwise in a vector than in its remainder. ML_NO_FMA: loops that are to round every operation by itself, and
// processors that have no such instruction, which are spared a slow function.
#ifdef ML_NO_FMA
ML_FUNCTION double ml_fma(double a, double b, double c) { return a * b + c; }
ML_FUNCTION float ml_fma(float a, float b, float c) { return a * b + c; }
#else
ML_FUNCTION double ml_fma(double a, double b, double c) { return std::fma(a, b, c); }
ML_FUNCTION float ml_fma(float a, float b, float c) { return std::fma(a, b, c); }
#endif
// Integers wrap round at the end of their range: computed without a sign, because C says nothing about signed overflow
// and compilers then take `a + 1 > a` for true.
template <class I> struct ml_without_sign;
template <> struct ml_without_sign<int32_t> { typedef uint32_t type; };
template <> struct ml_without_sign<int64_t> { typedef uint64_t type; };
template <class I> ML_FUNCTION I ml_wrapped_add(I a, I b) {
  typedef typename ml_without_sign<I>::type U;
  return (I)((U)a + (U)b);
}
template <class I> ML_FUNCTION I ml_sum(I a, I b) { return ml_wrapped_add(a, b); }  // of any type
ML_FUNCTION double ml_sum(double a, double b) { return a + b; }
ML_FUNCTION float ml_sum(float a, float b) { return a + b; }
template <class I> ML_FUNCTION I ml_wrapped_sub(I a, I b) {
  typedef typename ml_without_sign<I>::type U;
  return (I)((U)a - (U)b);
}
template <class I> ML_FUNCTION I ml_wrapped_mul(I a, I b) {
  typedef typename ml_without_sign<I>::type U;
  return (I)((U)a * (U)b);
}
template <class I> ML_FUNCTION I ml_wrapped_neg(I a) { return ml_wrapped_sub((I)0, a); }
template <class I> ML_FUNCTION I ml_abs(I a) { return a < 0 ? ml_wrapped_neg(a) : a; }
ML_FUNCTION double ml_abs(double a) { return std::fabs(a); }
ML_FUNCTION float ml_abs(float a) { return std::fabs(a); }
template <class T> ML_FUNCTION T ml_sign(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }
template <class T> ML_FUNCTION bool ml_signbit(T a) { return std::copysign((T)1, a) < 0; }
template <class T> ML_FUNCTION T ml_fmin(T a, T b) { return (a <= b || b != b) ? a : b; }  // a number wins over NaN
template <class T> ML_FUNCTION T ml_fmax(T a, T b) { return (a >= b || b != b) ? a : b; }
// A shift by the width or more, or by less than nothing, leaves only copies of the sign.
template <class I> ML_FUNCTION I ml_lshift(I a, I b) {
  typedef typename ml_without_sign<I>::type U;
  return (U)b < 8 * sizeof(I) ? (I)((U)a << (U)b) : (I)0;
}
template <class I> ML_FUNCTION I ml_rshift(I a, I b) {
  typedef typename ml_without_sign<I>::type U;
  return a >> ((U)b < 8 * sizeof(I) ? (int)b : (int)(8 * sizeof(I) - 1));
}
// By 0 it is 0; by -1 it is the negative: the processor would trap at the smallest number.
template <class I> ML_FUNCTION I ml_floordiv(I a, I b) {
  const I d = (b == 0 || b == -1) ? 1 : b, q = a / d;
  return b == 0 ? 0 : b == -1 ? ml_wrapped_neg(a) : (I)(q - ((a % d != 0) && ((a < 0) != (d < 0))));
}
template <class I> ML_FUNCTION I ml_mod(I a, I b) {
  const I d = (b == 0 || b == -1) ? 1 : b, r = a % d;
  return (r != 0 && ((r < 0) != (d < 0))) ? r + d : r;
}
// Quotient and rest of floating-point numbers, as NumPy makes them: from the exact rest, not from a rounded a / b.
template <class T> ML_FUNCTION T ml_rest(T a, T b) {
  const T r = std::fmod(a, b);
  if (b == 0) return r;
  if (r == 0) return std::copysign((T)0, b);
  return ((b < 0) != (r < 0)) ? r + b : r;
}
template <class T> ML_FUNCTION T ml_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T r = std::fmod(a, b);
  const T q = (a - r) / b - (T)(r != 0 && ((b < 0) != (r < 0)));
  if (q == 0) return std::copysign((T)0, a / b);
  const T whole = std::floor(q);
  return q - whole > (T)0.5 ? whole + 1 : whole;
}
ML_FUNCTION double ml_floordiv(double a, double b) { return ml_quotient(a, b); }
ML_FUNCTION float ml_floordiv(float a, float b) { return ml_quotient(a, b); }
ML_FUNCTION double ml_mod(double a, double b) { return ml_rest(a, b); }
ML_FUNCTION float ml_mod(float a, float b) { return ml_rest(a, b); }
ML_FUNCTION double ml_pow(double a, double b) { return std::pow(a, b); }
ML_FUNCTION float ml_pow(float a, float b) { return std::pow(a, b); }
template <class I> ML_FUNCTION I ml_pow(I a, I b) {  // b is not negative
  I r = 1;
  for (; b > 0; b >>= 1, a = ml_wrapped_mul(a, a)) if (b & 1) r = ml_wrapped_mul(r, a);
  return r;
}
// Towards zero; what fits no integer becomes the smallest one, where C leaves it open.
template <class I, class T> ML_FUNCTION I ml_whole(T a) {
  const T whole = std::trunc(a), end = sizeof(I) == 4 ? (T)2147483648.0 : (T)9223372036854775808.0;
  const bool fits = whole >= -end && whole < end;
  const I smallest = (I)((typename ml_without_sign<I>::type)1 << (8 * sizeof(I) - 1));
  return fits ? (I)(fits ? whole : (T)0) : smallest;
}
// The entry that index k is of n: negative ones count from the end, and what is outside is the nearest end.
ML_FUNCTION int64_t ml_index_of(int64_t k, int64_t n) {
  const int64_t counted = k < 0 ? ml_wrapped_add(k, n) : k;
  return counted < 0 ? 0 : counted < n ? counted : n - 1;
}
// The last of n increasing numbers that is not above x; the first where all are, or x is not a number.
template <class T> ML_FUNCTION int64_t ml_interval(const T* numbers, int64_t n, T x) {
  int64_t low = 0;
  for (int64_t left = n; left > 1;) {
    const int64_t half = left / 2;
    low = numbers[low + half] <= x ? low + half : low;
    left -= half;
  }
  return low;
}
