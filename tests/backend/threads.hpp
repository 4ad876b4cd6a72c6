// Generated CUDA C++ on a CPU with real threads, one for each thread of a block, for ThreadSanitizer.
//
// Blocks run one after the other. Two barriers take turns: with a single one, a slow thread that is still leaving the
// last barrier would look, through the barrier's lock, as if it had waited for a fast one that enters the next, and a race
// between the two would go unseen.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

struct ml_barrier {
  std::mutex lock;
  std::condition_variable open;
  unsigned waiting = 0, round = 0;
  void wait(unsigned all) {
    std::unique_lock<std::mutex> held(lock);
    const unsigned mine = round;
    if (++waiting == all) {
      waiting = 0;
      ++round;
      open.notify_all();
    } else {
      open.wait(held, [&] { return mine != round; });
    }
  }
};
static ml_barrier ml_barriers[2];
static thread_local unsigned ml_barrier_count;
inline void __syncthreads() { ml_barriers[ml_barrier_count++ % 2].wait(blockDim.x); }
template <class T> inline T atomicCAS(T* p, T expected, T fresh) {
  __atomic_compare_exchange_n(p, &expected, fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T> inline T atomicAdd(T* p, T v) {
  typedef typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type U;
  union { T value; U bits; } old, fresh;
  old.bits = __atomic_load_n((U*)p, __ATOMIC_RELAXED);
  do fresh.value = old.value + v;
  while (!__atomic_compare_exchange_n((U*)p, &old.bits, fresh.bits, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old.value;
}
inline void ml_emulate(int64_t grid, int64_t threads, int64_t shared, const ml_job& body) {
  ml_shared_bytes.resize(shared + 16);
  blockDim.x = (unsigned)threads;
  gridDim.x = (unsigned)grid;
  for (int64_t b = 0; b < grid; ++b) {
    blockIdx.x = (unsigned)b;
    std::vector<std::thread> all;
    for (int64_t t = 0; t < threads; ++t)
      all.emplace_back([&, t] {
        threadIdx.x = (unsigned)t;
        ml_barrier_count = 0;
        body();
      });
    for (auto& one : all) one.join();
  }
}

// One launch: arguments come from a file (size, bytes, ...) and go back to it.
inline int ml_launch(int count, char** words, void (*run)(int64_t, int64_t, int64_t, void**)) {
  FILE* file = std::fopen(words[2], "rb");
  if (count != 6 || !file) return 3;
  std::vector<std::vector<unsigned char>> data;
  std::vector<void*> pointers;
  std::vector<bool> is_array;
  int64_t size;
  while (std::fread(&size, 8, 1, file) == 1) {  // negative: a number of that many bytes
    data.emplace_back(size < 0 ? -size : size + 1);
    is_array.push_back(size >= 0);
    if (std::fread(data.back().data(), 1, size < 0 ? -size : size, file) != (size_t)(size < 0 ? -size : size)) return 3;
  }
  std::fclose(file);
  for (auto& one : data) pointers.push_back(one.data());
  std::vector<void*> arguments;
  for (size_t k = 0; k < data.size(); ++k) arguments.push_back(is_array[k] ? (void*)&pointers[k] : pointers[k]);
  run(std::stoll(words[3]), std::stoll(words[4]), std::stoll(words[5]), arguments.data());
  file = std::fopen(words[2], "wb");
  for (size_t k = 0; k < data.size(); ++k)
    if (is_array[k]) std::fwrite(data[k].data(), 1, data[k].size() - 1, file);
  std::fclose(file);
  return 0;
}
