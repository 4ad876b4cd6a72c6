// What a program needs at run time: replay of recorded operations, fills, records of globals, and a copy to measure.
#include <chrono>
#include <cstdint>
#include <cstring>

using Operation = void (*)(void* const* p, const int64_t* s);

namespace {
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
template <class T> void fill(void* const* p, const int64_t* s) {
  T* target = (T*)p[0];
  const T value = *(const T*)p[1];
  for (int64_t i = 0; i < s[0]; ++i) target[i] = value;
}
// Appends the values of a global, as doubles, to a history. p: global, history, cursor; s: number of values.
template <class T> void record(void* const* p, const int64_t* s) {
  const T* value = (const T*)p[0];
  double* history = (double*)p[1];
  int64_t* cursor = (int64_t*)p[2];
  for (int64_t i = 0; i < s[0]; ++i) history[*cursor + i] = (double)value[i];
  *cursor += s[1];
}
}  // namespace

extern "C" {
void ml_fill_float64(void* const* p, const int64_t* s) { fill<double>(p, s); }
void ml_fill_float32(void* const* p, const int64_t* s) { fill<float>(p, s); }
void ml_fill_int32(void* const* p, const int64_t* s) { fill<int32_t>(p, s); }
void ml_fill_int64(void* const* p, const int64_t* s) { fill<int64_t>(p, s); }
void ml_record_float64(void* const* p, const int64_t* s) { record<double>(p, s); }
void ml_record_float32(void* const* p, const int64_t* s) { record<float>(p, s); }
void ml_record_int32(void* const* p, const int64_t* s) { record<int32_t>(p, s); }
void ml_record_int64(void* const* p, const int64_t* s) { record<int64_t>(p, s); }

// The operations in order, until `done` is `replays` or so many seconds have passed, but always to the end of a replay;
// seconds[k] collects the time of operation k.
void ml_replay(int64_t replays, double patience, int64_t* done, int64_t count, Operation const* operations,
               void* const* const* pointers, const int64_t* const* sizes, double* seconds) {
  const double start = now();
  double before = start;
  while (*done < replays && before - start <= patience) {
    for (int64_t k = 0; k < count; ++k) {
      operations[k](pointers[k], sizes[k]);
      const double after = now();
      seconds[k] += after - before;
      before = after;
    }
    ++*done;
  }
}

// Seconds of the fastest of `repeats` copies of n doubles.
double ml_copy(double* to, const double* from, int64_t n, int64_t repeats, int64_t threads) {
  double best = 1e30;
  for (int64_t r = 0; r < repeats; ++r) {
    const double before = now();
#pragma omp parallel for schedule(static) num_threads((int)threads)
    for (int64_t t = 0; t < threads; ++t) {  // memcpy streams past the caches where that is faster
      const int64_t first = n * t / threads, last = n * (t + 1) / threads;
      std::memcpy(to + first, from + first, (last - first) * sizeof(double));
    }
    const double took = now() - before;
    if (took < best) best = took;
  }
  return best;
}
}
