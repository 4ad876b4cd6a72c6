//@ words
typedef ML_INDEX ml_index;
typedef unsigned ML_INDEX ml_unsigned;

// NaN wins, as in NumPy; of 0.0 and -0.0 the first, as on a CPU.
template <class T> ML_FUNCTION T ml_min(T a, T b) { return (b < a || b != b) ? b : a; }
template <class T> ML_FUNCTION T ml_max(T a, T b) { return (b > a || b != b) ? b : a; }
//@ operations.hpp
ML_FUNCTION double ml_cbrt(double a) { return std::cbrt(a); }
ML_FUNCTION float ml_cbrt(float a) { return std::cbrt(a); }

// Whole rows of array-of-structures fields, in pieces of 16 or 8 bytes where that divides them.
template <class T, int N> struct ml_row { T v[N]; };
struct __align__(16) ml_16 { unsigned long long a, b; };
template <class T, int N> ML_FUNCTION ml_row<T, N> ml_load(const T* p) {
  union { ml_row<T, N> row; ml_16 wide[(N * sizeof(T) + 15) / 16]; unsigned long long half[(N * sizeof(T) + 7) / 8]; } u;
  if (N * sizeof(T) % 16 == 0) {
#pragma unroll
    for (int k = 0; k < (int)(N * sizeof(T) / 16); ++k) u.wide[k] = reinterpret_cast<const ml_16*>(p)[k];
  } else if (N * sizeof(T) % 8 == 0) {
#pragma unroll
    for (int k = 0; k < (int)(N * sizeof(T) / 8); ++k) u.half[k] = reinterpret_cast<const unsigned long long*>(p)[k];
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) u.row.v[k] = p[k];
  }
  return u.row;
}
template <class T, int N> ML_FUNCTION void ml_store(T* p, const ml_row<T, N> row) {
  union { ml_row<T, N> row; ml_16 wide[(N * sizeof(T) + 15) / 16]; unsigned long long half[N * sizeof(T) / 8]; } u;
  u.row = row;
  if (N * sizeof(T) % 16 == 0) {
#pragma unroll
    for (int k = 0; k < (int)(N * sizeof(T) / 16); ++k) reinterpret_cast<ml_16*>(p)[k] = u.wide[k];
  } else {
#pragma unroll
    for (int k = 0; k < (int)(N * sizeof(T) / 8); ++k) reinterpret_cast<unsigned long long*>(p)[k] = u.half[k];
  }
}

// Two numbers side by side, loaded and stored at once, that are calculated with like one.
template <class T> struct alignas(2 * sizeof(T)) ml_pair {
  T a, b;
  ml_pair() = default;
  ML_FUNCTION ml_pair(T both) : a(both), b(both) {}
  ML_FUNCTION ml_pair(T first, T second) : a(first), b(second) {}
  friend ML_FUNCTION ml_pair operator+(ml_pair p, ml_pair q) { return {p.a + q.a, p.b + q.b}; }
  friend ML_FUNCTION ml_pair operator-(ml_pair p, ml_pair q) { return {p.a - q.a, p.b - q.b}; }
  friend ML_FUNCTION ml_pair operator*(T factor, ml_pair p) { return {factor * p.a, factor * p.b}; }
  friend ML_FUNCTION ml_pair operator*(ml_pair p, T factor) { return factor * p; }
  friend ML_FUNCTION ml_pair ml_fma(ml_pair p, ml_pair q, ml_pair r) { return {ml_fma(p.a, q.a, r.a), ml_fma(p.b, q.b, r.b)}; }
  ML_FUNCTION ml_pair& operator+=(ml_pair p) { return *this = *this + p; }
  ML_FUNCTION ml_pair& operator-=(ml_pair p) { return *this = *this - p; }
  ML_FUNCTION ml_pair& operator*=(T factor) { return *this = factor * *this; }
};

// What another thread of the warp has: whose number differs by ``mask``, or is ``lane``. Every thread of the block must ask.
//@ lanes
template <class T, int N> ML_FUNCTION ml_row<T, N> ml_lane(ml_row<T, N> row, int mask) {
  ml_row<T, N> other;
#pragma unroll
  for (int k = 0; k < N; ++k) other.v[k] = ml_lane(row.v[k], mask);
  return other;
}

// The sum of a value over the threads of a block, a power of two, known to all; ``room``: one entry for each.
template <class T> ML_FUNCTION T ml_block_sum(T value, T* room) {
  room[threadIdx.x] = value;
  __syncthreads();
  for (unsigned h = blockDim.x / 2; h > 0; h /= 2) {
    if (threadIdx.x < h) room[threadIdx.x] += room[threadIdx.x + h];
    __syncthreads();
  }
  const T sum = room[0];
  __syncthreads();
  return sum;
}

// Atomics: sums by hardware, minima and maxima of floating-point numbers by compare-and-swap (NaN wins there too).
template <class T> struct ml_bits;
template <> struct ml_bits<double> { typedef unsigned long long type; };
template <> struct ml_bits<int64_t> { typedef unsigned long long type; };
template <> struct ml_bits<float> { typedef unsigned int type; };
template <> struct ml_bits<int32_t> { typedef unsigned int type; };
template <bool SMALLER, class T> ML_FUNCTION void ml_atomic_extreme(T* p, T v) {
  typedef typename ml_bits<T>::type U;
  union { T value; U bits; } old, fresh;
  old.bits = ml_peek((U*)p);
  for (;;) {
    fresh.value = SMALLER ? ml_min(old.value, v) : ml_max(old.value, v);
    if (fresh.bits == old.bits) return;
    const U seen = atomicCAS((U*)p, old.bits, fresh.bits);
    if (seen == old.bits) return;
    old.bits = seen;
  }
}
template <class T> ML_FUNCTION void ml_atomic_add(T* p, T v) { atomicAdd(p, v); }
template <> ML_FUNCTION void ml_atomic_add<int64_t>(int64_t* p, int64_t v) {
  atomicAdd((unsigned long long*)p, (unsigned long long)v);
}
template <class T> ML_FUNCTION void ml_atomic_minimum(T* p, T v) { ml_atomic_extreme<true>(p, v); }
template <class T> ML_FUNCTION void ml_atomic_maximum(T* p, T v) { ml_atomic_extreme<false>(p, v); }
