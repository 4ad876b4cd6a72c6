// Generated CUDA C++ on a CPU with real threads, one for each thread of a block, for ThreadSanitizer.
//
// Blocks run one after the other. Two barriers take turns: with a single one, a slow thread that is still leaving the
// last barrier would look, through the barrier's lock, as if it had waited for a fast one that enters the next, and a race
// between the two would go unseen. Plain C where that will do: compiling the headers of C++ takes most of such a test.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ml_barrier {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t open = PTHREAD_COND_INITIALIZER;
  unsigned waiting = 0, round = 0;
  void wait(unsigned all) {
    pthread_mutex_lock(&lock);
    const unsigned mine = round;
    if (++waiting == all) {
      waiting = 0;
      ++round;
      pthread_cond_broadcast(&open);
    } else {
      while (mine == round) pthread_cond_wait(&open, &lock);
    }
    pthread_mutex_unlock(&lock);
  }
};
static ml_barrier ml_barriers[2];
static thread_local unsigned ml_barrier_count;
inline void __syncthreads() { ml_barriers[ml_barrier_count++ % 2].wait(blockDim.x); }
template <class T> inline T atomicCAS(T* p, T expected, T fresh) {
  __atomic_compare_exchange_n(p, &expected, fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <int BYTES> struct ml_whole_number { typedef uint32_t type; };
template <> struct ml_whole_number<8> { typedef uint64_t type; };
template <class T> inline T atomicAdd(T* p, T v) {
  typedef typename ml_whole_number<sizeof(T)>::type U;
  union { T value; U bits; } old, fresh;
  old.bits = __atomic_load_n((U*)p, __ATOMIC_RELAXED);
  do fresh.value = old.value + v;
  while (!__atomic_compare_exchange_n((U*)p, &old.bits, fresh.bits, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old.value;
}
struct ml_thread {
  pthread_t started;
  unsigned number;
  const ml_job* body;
};
inline void* ml_run_thread(void* given) {
  const ml_thread& mine = *(const ml_thread*)given;
  threadIdx.x = mine.number;
  ml_barrier_count = 0;
  (*mine.body)();
  return nullptr;
}
inline void ml_emulate(int64_t grid, int64_t threads, int64_t shared, const ml_job& body) {
  static ml_thread all[ML_THREADS];
  ml_make_room(shared);
  blockDim.x = (unsigned)threads;
  gridDim.x = (unsigned)grid;
  for (int64_t b = 0; b < grid; ++b) {
    blockIdx.x = (unsigned)b;
    for (int64_t t = 0; t < threads; ++t) {
      all[t].number = (unsigned)t;
      all[t].body = &body;
      if (pthread_create(&all[t].started, nullptr, ml_run_thread, &all[t])) abort();
    }
    for (int64_t t = 0; t < threads; ++t) pthread_join(all[t].started, nullptr);
  }
}

// One launch: arguments come from a file (size, bytes, ...) and go back to it.
inline int ml_launch(int count, char** words, void (*run)(int64_t, int64_t, int64_t, void**)) {
  constexpr int MOST = 256;
  static struct { void* data; int64_t size; } all[MOST];  // a negative size: a number of that many bytes
  static void* arguments[MOST];
  FILE* file = count == 6 ? fopen(words[2], "rb") : nullptr;
  if (!file) return 3;
  int found = 0;
  for (int64_t size; fread(&size, 8, 1, file) == 1; ++found) {
    const size_t bytes = (size_t)(size < 0 ? -size : size);
    if (found == MOST) return 3;
    all[found] = {ml_room(bytes + 1), size};
    if (fread(all[found].data, 1, bytes, file) != bytes) return 3;
    arguments[found] = size < 0 ? all[found].data : &all[found].data;
  }
  fclose(file);
  run(atoll(words[3]), atoll(words[4]), atoll(words[5]), arguments);
  file = fopen(words[2], "wb");
  if (!file) return 3;
  for (int k = 0; k < found; ++k)
    if (all[k].size >= 0) fwrite(all[k].data, 1, (size_t)all[k].size, file);
  fclose(file);
  return 0;
}
