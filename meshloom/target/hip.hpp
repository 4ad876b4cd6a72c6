// What generated HIP C++ may call: NumPy's meaning of operations that C spells otherwise, atomics, whole rows.
// ML_INDEX is int where every position fits into 31 bits, else long long. No header is included. Which of the standard
// names a HIP compiler brings along by itself, and for which types, is another matter in every version of ROCm: so they
// all are our own here, under the names that generated text has for them.
#ifndef ML_EMULATED
typedef signed int ml_int32;
typedef signed long long ml_int64;
typedef unsigned char ml_uint8;
typedef unsigned short ml_uint16;
typedef unsigned int ml_uint32;
typedef unsigned long long ml_uint64;
#define int32_t ml_int32
#define int64_t ml_int64
#define uint8_t ml_uint8
#define uint16_t ml_uint16
#define uint32_t ml_uint32
#define uint64_t ml_uint64
#undef INT64_C
#undef UINT64_C
#undef INFINITY
#undef NAN
#define INT64_C(x) x##LL
#define UINT64_C(x) x##ULL
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define ML_FUNCTION __device__ inline __attribute__((always_inline))
#ifndef __align__
#define __align__(n) alignas(n)
#endif
#ifndef HIP_DYNAMIC_SHARED
#define HIP_DYNAMIC_SHARED(type, var) extern __shared__ type var[];
#endif
#define ML_C(NAME) ::NAME
#define std ml_std
//@ mathematics.hpp
#endif
// Ask for so many bytes from p on, which must all be there: devices before gfx12 have no word for it and go on.
ML_FUNCTION void ml_prefetch(const void* p, int bytes) {
  for (int k = 0; k < bytes; k += 128) __builtin_prefetch((const char*)p + k);
}
template <class U> ML_FUNCTION U ml_peek(U* p) {  // a value others may be changing
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
struct alignas(16) ml_shared_piece { unsigned char bytes[16]; };
ML_FUNCTION unsigned char* ml_dynamic_shared() {
  HIP_DYNAMIC_SHARED(ml_shared_piece, ml_shared)
  return (unsigned char*)ml_shared;
}
// Sums by hardware, where HIP's atomicAdd goes round a compare-and-swap; fields lie in memory for which that is allowed.
template <class T> ML_FUNCTION void ml_atomic_add(T* p, T v);
template <> ML_FUNCTION void ml_atomic_add<double>(double* p, double v) { unsafeAtomicAdd(p, v); }
template <> ML_FUNCTION void ml_atomic_add<float>(float* p, float v) { unsafeAtomicAdd(p, v); }
//@ lanes
template <class T> ML_FUNCTION T ml_lane(T value, int mask) { return __shfl_xor(value, mask); }
template <class T> ML_FUNCTION T ml_from(T value, int lane) { return __shfl(value, lane); }
