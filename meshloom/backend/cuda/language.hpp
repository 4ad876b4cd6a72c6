// The words of CUDA and HIP for a CPU's compiler: what every emulation of generated kernels starts with.
#define ML_EMULATED 1
//@ host.hpp
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// What a thread does, by reference.
struct ml_job {
  void (*call)(const void*);
  const void* what;
  template <class F> ml_job(const F& f) : call([](const void* p) { (*(const F*)p)(); }), what(&f) {}
  void operator()() const { call(what); }
};
struct ml_dim { unsigned x; };
static thread_local ml_dim threadIdx;
static ml_dim blockIdx, blockDim, gridDim;
static struct ml_shared_memory {
  unsigned char* bytes;
  size_t size;
  ~ml_shared_memory() { ml_free(bytes); }
} ml_shared_bytes;
inline void ml_make_room(int64_t shared) {
  if (ml_shared_bytes.size >= (size_t)shared + 16) return;
  ml_free(ml_shared_bytes.bytes);
  ml_shared_bytes.bytes = (unsigned char*)ml_room(ml_shared_bytes.size = (size_t)shared + 16);
}
constexpr int ML_THREADS = 1024;  // of a block, at most
#ifndef ML_LANES
#define ML_LANES 32u  // threads of a warp
#endif
static uint64_t ml_lanes[ML_THREADS];  // what the threads of a block show each other
inline unsigned char* ml_shared_start() {
  return (unsigned char*)(((uintptr_t)ml_shared_bytes.bytes + 15) / 16 * 16);
}
inline void __syncthreads();
// What the thread of that number in the own warp shows; every thread of the block must show something.
template <class T> inline T ml_shown(T value, int lane) {
  ml_lanes[threadIdx.x] = 0;
  __builtin_memcpy(&ml_lanes[threadIdx.x], &value, sizeof(T));
  __syncthreads();
  __builtin_memcpy(&value, &ml_lanes[(threadIdx.x & ~(ML_LANES - 1)) | ((unsigned)lane & (ML_LANES - 1))], sizeof(T));
  __syncthreads();
  return value;
}
