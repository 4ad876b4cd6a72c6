// What generated C++ may call: NumPy's meaning of operations that C spells otherwise, atomics, scratch memory.
//@ host.hpp
using ml_index = int64_t;  // numbers of elements and positions in arrays
using ml_unsigned = uint64_t;
// NaN wins, as in NumPy. Two selections: compilers fail to vectorise one whose condition joins two comparisons. The
// second asks b, the first asks no more than once for a: otherwise the time to compile a chain of minima explodes.
template <class T> inline T ml_min(T a, T b) { const bool first = !(a >= b); const T m = first ? a : b; return b != b ? b : m; }
template <class T> inline T ml_max(T a, T b) { const bool first = !(a <= b); const T m = first ? a : b; return b != b ? b : m; }
// The same of floating-point numbers: compilers move selections by what is not a number through other registers, one by
// one. Of two operands of which one is not a number, minima and maxima of processors are the second, so a is never
// lost; of b it is the difference, which is 0 of every number, also of one without end.
#define ML_EXTREMA(T, ABS, LARGEST) \
  inline T ml_no_number(T b) { const T size = ABS(b), c = LARGEST < size ? LARGEST : size; return c - c; } \
  inline T ml_min(T a, T b) { return (b < a ? b : a) - ml_no_number(b); } \
  inline T ml_max(T a, T b) { return (b > a ? b : a) - ml_no_number(b); }
ML_EXTREMA(double, __builtin_fabs, __DBL_MAX__) ML_EXTREMA(float, __builtin_fabsf, __FLT_MAX__)
// NaN must win when the lanes of a vectorised reduction are merged, too; OpenMP's own min and max may lose it.
#pragma omp declare reduction(ml_minimum : double, float, int32_t, int64_t : omp_out = ml_min(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)
#pragma omp declare reduction(ml_maximum : double, float, int32_t, int64_t : omp_out = ml_max(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)
//@ operations.hpp
// OpenMP's own + would merge the lanes of integers with a sign, which must not overflow.
#pragma omp declare reduction(ml_add : int32_t, int64_t : omp_out = ml_wrapped_add(omp_out, omp_in)) initializer(omp_priv = 0)
// The library's cbrt is a call that keeps loops from being vectorised. Here: the exponent divided by three, two steps
// that triple the digits and one that cleans up the last of them; numbers too small or too large are scaled first.
inline double ml_cbrt(double a) {
  const double size = std::fabs(a);
  const bool tiny = size < 0x1p-900, huge = size > 0x1p900;
  const double x = tiny ? size * 0x1p180 : huge ? size * 0x1p-180 : size;
  uint64_t bits; __builtin_memcpy(&bits, &x, sizeof bits);
  bits = ((((bits >> 32) * UINT64_C(0x55555556)) >> 32) + UINT64_C(0x2A9F7893)) << 32;
  double t; __builtin_memcpy(&t, &bits, sizeof t);
  double c = t * t * t; t = t * ((c + 2 * x) / (2 * c + x));
  c = t * t * t; t = t * ((c + 2 * x) / (2 * c + x));
  t = t - ml_fma(t * t, t, -x) / (3 * t * t);
  t = tiny ? t * 0x1p-60 : huge ? t * 0x1p60 : t;
  return std::copysign(size > 0 && size < INFINITY ? t : size, a);
}
inline float ml_cbrt(float a) { return (float)ml_cbrt((double)a); }
template <int BYTES> struct ml_bits;
template <> struct ml_bits<4> { using type = uint32_t; };
template <> struct ml_bits<8> { using type = uint64_t; };
template <class T, class F> inline void ml_atomic_apply(T* p, T v, F f) {
  using U = typename ml_bits<sizeof(T)>::type;
  U old = __atomic_load_n((U*)p, __ATOMIC_RELAXED), fresh;
  do {
    T a; __builtin_memcpy(&a, &old, sizeof a); a = f(a, v); __builtin_memcpy(&fresh, &a, sizeof a);
    if (fresh == old) return;
  } while (!__atomic_compare_exchange_n((U*)p, &old, fresh, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
template <class T> inline void ml_atomic_add(T* p, T v) { ml_atomic_apply(p, v, [](T a, T b) { return ml_sum(a, b); }); }
template <class T> inline void ml_atomic_minimum(T* p, T v) { ml_atomic_apply(p, v, [](T a, T b) { return ml_min(a, b); }); }
template <class T> inline void ml_atomic_maximum(T* p, T v) { ml_atomic_apply(p, v, [](T a, T b) { return ml_max(a, b); }); }
struct ml_buffer {
  void* data;
  size_t bytes;
  ~ml_buffer() { ml_free(data); }
};
template <class T, int K> inline T* ml_scratch(int64_t size) {  // one buffer per thread, kept between calls
  static thread_local ml_buffer buffer;
  if (buffer.bytes < (size_t)size * sizeof(T)) {
    ml_free(buffer.data);
    buffer.data = ml_room(buffer.bytes = (size_t)size * sizeof(T));
  }
  return (T*)buffer.data;
}
