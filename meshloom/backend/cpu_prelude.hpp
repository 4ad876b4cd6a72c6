// What generated C++ may call: NumPy's meaning of operations that C spells otherwise, atomics, scratch memory.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>
using ml_index = int64_t;  // numbers of elements and positions in arrays
using ml_unsigned = uint64_t;
template <class T> inline T ml_min(T a, T b) { return (a < b || a != a) ? a : b; }  // NaN wins, as in NumPy
template <class T> inline T ml_max(T a, T b) { return (a > b || a != a) ? a : b; }
inline double ml_abs(double a) { return std::fabs(a); }
inline float ml_abs(float a) { return std::fabs(a); }
inline int32_t ml_abs(int32_t a) { return a < 0 ? -a : a; }
inline int64_t ml_abs(int64_t a) { return a < 0 ? -a : a; }
template <class T> inline T ml_sign(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }
inline double ml_floordiv(double a, double b) { return std::floor(a / b); }
inline float ml_floordiv(float a, float b) { return std::floor(a / b); }
template <class I> inline I ml_floordiv(I a, I b) { return b == 0 ? 0 : a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }
template <class T> inline T ml_fmod(T a, T b) {
  const T r = std::fmod(a, b);
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}
inline double ml_mod(double a, double b) { return ml_fmod(a, b); }
inline float ml_mod(float a, float b) { return ml_fmod(a, b); }
template <class I> inline I ml_mod(I a, I b) { return b == 0 ? 0 : a - ml_floordiv(a, b) * b; }
inline double ml_pow(double a, double b) { return std::pow(a, b); }
inline float ml_pow(float a, float b) { return std::pow(a, b); }
template <class I> inline I ml_pow(I a, I b) { I r = 1; for (; b > 0; b >>= 1, a *= a) if (b & 1) r *= a; return r; }
template <class T, class F> inline void ml_atomic_apply(T* p, T v, F f) {
  using U = typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type;
  U old = __atomic_load_n((U*)p, __ATOMIC_RELAXED), fresh;
  do {
    T a; std::memcpy(&a, &old, sizeof a); a = f(a, v); std::memcpy(&fresh, &a, sizeof a);
    if (fresh == old) return;
  } while (!__atomic_compare_exchange_n((U*)p, &old, fresh, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
template <class T> inline void ml_atomic_add(T* p, T v) { ml_atomic_apply(p, v, [](T a, T b) { return (T)(a + b); }); }
template <class T> inline void ml_atomic_minimum(T* p, T v) { ml_atomic_apply(p, v, [](T a, T b) { return ml_min(a, b); }); }
template <class T> inline void ml_atomic_maximum(T* p, T v) { ml_atomic_apply(p, v, [](T a, T b) { return ml_max(a, b); }); }
template <class T, int K> inline T* ml_scratch(int64_t size) {  // one buffer per thread, kept between calls
  static thread_local std::vector<T> buffer;
  if ((int64_t)buffer.size() < size) buffer.resize(size);
  return buffer.data();
}
