// Generated CUDA or HIP C++ on a CPU, for tests: the threads of a block are fibres, a barrier switches to the next one,
// shared memory is static, atomics are plain. Blocks run one after the other. The system starts a fibre once; all later
// switches are jumps, which ask the system for nothing.
#include <setjmp.h>
#include <ucontext.h>

namespace ml_fibres {
constexpr size_t STACK = 64 * 1024;
static jmp_buf places[ML_THREADS], home;  // where each fibre waits, and where the block goes on
static bool started[ML_THREADS], alive[ML_THREADS];
static const ml_job* job;
static size_t running;
// Of this library alone: what an inline function keeps may be shared by libraries, and be destroyed with one of them.
static struct Stacks {
  char* all[ML_THREADS];
  ~Stacks() { for (char* one : all) ml_free(one); }
} stacks;
static void enter() {  // once; the fibre then waits for what the next block has to do
  for (;;) {
    (*job)();
    alive[running] = false;
    if (!_setjmp(places[running])) _longjmp(home, 1);
  }
}
static void start() {
  static ucontext_t before, fresh;
  char* const stack = stacks.all[running] = (char*)ml_room(STACK);
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = stack;
  fresh.uc_stack.ss_size = STACK;
  fresh.uc_link = nullptr;
  makecontext(&fresh, enter, 0);
  started[running] = true;
  swapcontext(&before, &fresh);
}
static void resume() {  // a fibre runs to its next barrier or its end
  if (_setjmp(home)) return;
  if (started[running]) _longjmp(places[running], 1);
  start();
}
static void block(unsigned threads) {
  for (unsigned t = 0; t < threads; ++t) alive[t] = true;
  for (bool any = true; any;) {
    any = false;
    for (running = 0; running < threads; ++running)
      if (alive[running]) {
        threadIdx.x = (unsigned)running;
        resume();
        any |= alive[running];
      }
  }
}
}  // namespace ml_fibres

inline void __syncthreads() {
  const size_t me = ml_fibres::running;
  if (!_setjmp(ml_fibres::places[me])) _longjmp(ml_fibres::home, 1);
}
template <class T> inline T atomicAdd(T* p, T v) { const T old = *p; *p = old + v; return old; }
inline int atomicAdd(int* p, int v) { const int old = *p; *p = (int)((unsigned)old + (unsigned)v); return old; }
template <class T> inline T atomicCAS(T* p, T expected, T fresh) { const T old = *p; if (old == expected) *p = fresh; return old; }
inline void ml_emulate(int64_t grid, int64_t threads, int64_t shared, const ml_job& thread) {
  ml_make_room(shared);
  ml_fibres::job = &thread;
  blockDim.x = (unsigned)threads;
  gridDim.x = (unsigned)grid;
  for (int64_t b = 0; b < grid; ++b) {
    blockIdx.x = (unsigned)b;
    ml_fibres::block((unsigned)threads);
  }
}
