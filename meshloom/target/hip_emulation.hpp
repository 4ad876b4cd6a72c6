// The words of HIP for a CPU's compiler: those that language.hpp and the threads of a block do not have for CUDA, too.
#define HIP_DYNAMIC_SHARED(type, var) type* var = (type*)ml_shared_start();
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __hip_atomic_load(p, order, scope) __atomic_load_n(p, order)
#define __builtin_prefetch(p) (void)*(const volatile char*)(p)  // reads, so that tools see what is asked for
static const int warpSize = (int)ML_LANES;
template <class T> inline T __shfl(T value, int lane, int width = warpSize) {
  const int own = (int)(threadIdx.x % ML_LANES);
  return ml_shown(value, (own & ~(width - 1)) | (lane & (width - 1)));
}
template <class T> inline T __shfl_xor(T value, int mask, int width = warpSize) {
  return __shfl(value, (int)(threadIdx.x % ML_LANES) ^ mask, width);
}
template <class T> inline T atomicAdd(T* p, T v);
template <class T> inline T unsafeAtomicAdd(T* p, T v) { return atomicAdd(p, v); }
