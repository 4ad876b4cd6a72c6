// What generated CUDA C++ may call: NumPy's meaning of operations that C spells otherwise, atomics, whole rows.
// ML_INDEX is int where every position fits into 31 bits, else long long. No header is included: NVRTC has none.
#ifndef ML_EMULATED
typedef signed int int32_t;
typedef signed long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT64_C(x) x##LL
#define UINT64_C(x) x##ULL
#define INFINITY (1.0f / 0.0f)  // constants, which tables in memory may begin with; intrinsics are none
#define NAN (-(0.0f / 0.0f))  // the positive one
#define ML_FUNCTION __device__ __forceinline__
#define ML_C(NAME) ::NAME
//@ mathematics.hpp
// Ask for so many bytes from p on, which must all be there, to be brought into the L2 cache.
ML_FUNCTION void ml_prefetch(const void* p, int bytes) {
#if __CUDA_ARCH__ >= 900
  const unsigned long long first = ((unsigned long long)p + 15) & ~15ull, last = ((unsigned long long)p + bytes) & ~15ull;
  if (first < last) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"((unsigned)(last - first)));
#else
  for (int k = 0; k < bytes; k += 32) asm volatile("prefetch.global.L2 [%0];" ::"l"((const char*)p + k));
#endif
}
template <class U> ML_FUNCTION U ml_peek(U* p) { return *(volatile U*)p; }  // a value others may be changing
ML_FUNCTION unsigned char* ml_dynamic_shared() {
  extern __shared__ __align__(16) unsigned char ml_shared[];
  return ml_shared;
}
#endif
//@ lanes
#ifndef ML_EMULATED
template <class T> ML_FUNCTION T ml_lane(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
template <class T> ML_FUNCTION T ml_from(T value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define ML_REDUCES_LANES
template <int LANES> ML_FUNCTION int ml_largest_of_lanes(int a) { return __reduce_max_sync(0xffffffffu, a); }
template <int LANES> ML_FUNCTION int ml_bits_of_lanes(int a) { return (int)__reduce_or_sync(0xffffffffu, (unsigned)a); }
// In pieces of 27 bits, so that 32 of each fit an unsigned number; above 2^64 nothing is kept, as where two are added.
template <int LANES> ML_FUNCTION int64_t ml_sum_of_lanes(int64_t a) {
  const unsigned long long piece = (1ull << 27) - 1, u = (unsigned long long)a;
  const unsigned low = __reduce_add_sync(0xffffffffu, (unsigned)(u & piece));
  const unsigned middle = __reduce_add_sync(0xffffffffu, (unsigned)(u >> 27 & piece));
  const unsigned high = __reduce_add_sync(0xffffffffu, (unsigned)(u >> 54));
  return (int64_t)(low + ((unsigned long long)middle << 27) + ((unsigned long long)high << 54));
}
#endif
#endif
