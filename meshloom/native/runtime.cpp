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
template <class T> void assign(void* const* p, const int64_t* s) {
  std::memcpy(p[0], p[1], sizeof(T) * (size_t)s[0]);
}
// Appends the values of a global, as doubles, to a history. p: global, history, cursor; s: number of values.
template <class T> void record(void* const* p, const int64_t* s) {
  const T* value = (const T*)p[0];
  double* history = (double*)p[1];
  int64_t* cursor = (int64_t*)p[2];
  for (int64_t i = 0; i < s[0]; ++i) history[*cursor + i] = (double)value[i];
  *cursor += s[1];
}
// A number of any type: whole ones compare as such, all others as doubles.
struct Number {
  bool whole;
  int64_t integer;
  double real;
};
inline Number number(const void* p, int64_t type) {
  switch (type) {
    case 0: return {false, 0, *(const double*)p};
    case 1: return {false, 0, (double)*(const float*)p};
    case 2: return {true, *(const int64_t*)p, (double)*(const int64_t*)p};
    default: return {true, (int64_t)*(const int32_t*)p, (double)*(const int32_t*)p};
  }
}
template <class T> bool compared(T a, T b, int64_t sign) {
  switch (sign) {
    case 0: return a < b;
    case 1: return a <= b;
    case 2: return a > b;
    default: return a >= b;
  }
}
}  // namespace

extern "C" {
void ml_fill_float64(void* const* p, const int64_t* s) { fill<double>(p, s); }
void ml_fill_float32(void* const* p, const int64_t* s) { fill<float>(p, s); }
void ml_fill_int32(void* const* p, const int64_t* s) { fill<int32_t>(p, s); }
void ml_fill_int64(void* const* p, const int64_t* s) { fill<int64_t>(p, s); }
void ml_assign_float64(void* const* p, const int64_t* s) { assign<double>(p, s); }
void ml_assign_float32(void* const* p, const int64_t* s) { assign<float>(p, s); }
void ml_assign_int32(void* const* p, const int64_t* s) { assign<int32_t>(p, s); }
void ml_assign_int64(void* const* p, const int64_t* s) { assign<int64_t>(p, s); }
void ml_record_float64(void* const* p, const int64_t* s) { record<double>(p, s); }
void ml_record_float32(void* const* p, const int64_t* s) { record<float>(p, s); }
void ml_record_int32(void* const* p, const int64_t* s) { record<int32_t>(p, s); }
void ml_record_int64(void* const* p, const int64_t* s) { record<int64_t>(p, s); }

// Notes whether a comparison holds. p: left, right, answer; s: their types, the sign.
void ml_compare(void* const* p, const int64_t* s) {
  const Number a = number(p[0], s[0]), b = number(p[1], s[1]);
  const bool whole = a.whole && b.whole;
  *(int64_t*)p[2] = whole ? compared(a.integer, b.integer, s[2]) : compared(a.real, b.real, s[2]);
}

// The operations in order, until `done` is `replays`, one of them has set `enough`, or so many seconds have passed, but
// always to the end of a replay; seconds[k] collects the time of operation k.
void ml_replay(int64_t replays, double patience, int64_t* done, const int64_t* enough, int64_t count,
               Operation const* operations, void* const* const* pointers, const int64_t* const* sizes,
               double* seconds) {
  const double start = now();
  double before = start;
  while (*done < replays && !*enough && before - start <= patience) {
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
