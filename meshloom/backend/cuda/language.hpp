// The words of CUDA and HIP for a CPU's compiler: what every emulation of generated kernels starts with.
#define ML_EMULATED 1
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define ML_FUNCTION inline

// What a thread does, by reference (std::function's header would take most of the time of compiling a kernel).
struct ml_job {
  void (*call)(const void*);
  const void* what;
  template <class F> ml_job(const F& f) : call([](const void* p) { (*(const F*)p)(); }), what(&f) {}
  void operator()() const { call(what); }
};
struct ml_dim { unsigned x; };
static thread_local ml_dim threadIdx;
static ml_dim blockIdx, blockDim, gridDim;
static std::vector<unsigned char> ml_shared_bytes;
#ifndef ML_LANES
#define ML_LANES 32u  // threads of a warp
#endif
static uint64_t ml_lanes[1024];  // what the threads of a block show each other
inline unsigned char* ml_shared_start() {
  return (unsigned char*)(((uintptr_t)ml_shared_bytes.data() + 15) / 16 * 16);
}
inline void __syncthreads();
// What the thread of that number in the own warp shows; every thread of the block must show something.
template <class T> inline T ml_shown(T value, int lane) {
  ml_lanes[threadIdx.x] = 0;
  std::memcpy(&ml_lanes[threadIdx.x], &value, sizeof(T));
  __syncthreads();
  std::memcpy(&value, &ml_lanes[(threadIdx.x & ~(ML_LANES - 1)) | ((unsigned)lane & (ML_LANES - 1))], sizeof(T));
  __syncthreads();
  return value;
}
