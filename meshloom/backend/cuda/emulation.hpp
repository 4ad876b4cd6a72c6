// Generated CUDA or HIP C++ on a CPU, for tests: the threads of a block are fibres, a barrier switches to the next one, shared
// memory is static, atomics are plain. Blocks run one after the other.
#include <ucontext.h>

namespace ml_fibres {
constexpr size_t STACK = 64 * 1024;
static std::vector<ucontext_t> contexts;
static std::vector<char> alive;
static ucontext_t home;
static const ml_job* job;
static size_t running;
static void enter() {
  (*job)();
  alive[running] = 0;
  swapcontext(&contexts[running], &home);
}
// Of this library alone: what an inline function keeps may be shared by libraries, and be destroyed with one of them.
static struct Stacks {
  std::vector<char*> all;  // kept for the next launch
  ~Stacks() { for (char* one : all) delete[] one; }
} stacks;
static void block(unsigned threads) {
  while (stacks.all.size() < threads) stacks.all.push_back(new char[STACK]);
  contexts.resize(threads);
  alive.assign(threads, 1);
  for (unsigned t = 0; t < threads; ++t) {
    getcontext(&contexts[t]);
    contexts[t].uc_stack.ss_sp = stacks.all[t];
    contexts[t].uc_stack.ss_size = STACK;
    contexts[t].uc_link = nullptr;
    makecontext(&contexts[t], enter, 0);
  }
  for (bool any = true; any;) {  // one round: every living fibre runs to its next barrier or its end
    any = false;
    for (running = 0; running < threads; ++running)
      if (alive[running]) {
        threadIdx.x = (unsigned)running;
        swapcontext(&home, &contexts[running]);
        any |= alive[running] != 0;
      }
  }
}
}  // namespace ml_fibres

inline void __syncthreads() {
  const size_t me = ml_fibres::running;
  swapcontext(&ml_fibres::contexts[me], &ml_fibres::home);
  threadIdx.x = (unsigned)me;
}
template <class T> inline T atomicAdd(T* p, T v) { const T old = *p; *p = old + v; return old; }
inline int atomicAdd(int* p, int v) { const int old = *p; *p = (int)((unsigned)old + (unsigned)v); return old; }
template <class T> inline T atomicCAS(T* p, T expected, T fresh) { const T old = *p; if (old == expected) *p = fresh; return old; }
inline void ml_emulate(int64_t grid, int64_t threads, int64_t shared, const ml_job& thread) {
  if ((int64_t)ml_shared_bytes.size() < shared + 16) ml_shared_bytes.resize(shared + 16);
  ml_fibres::job = &thread;
  blockDim.x = (unsigned)threads;
  gridDim.x = (unsigned)grid;
  for (int64_t b = 0; b < grid; ++b) {
    blockIdx.x = (unsigned)b;
    ml_fibres::block((unsigned)threads);
  }
}
