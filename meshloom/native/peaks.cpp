// What a processor does at most: every thread goes on with so many values that none has to wait for another.
#include <chrono>
#include <cmath>

namespace {
// Of a thread: a dozen vectors, as an operation takes a few cycles; more would not fit into registers.
template <class T> constexpr int VALUES = 384 / sizeof(T);

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T> T multiply_add(T x, T a, T b) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
  return std::fma(x, a, b);
#else
  return x * a + b;
#endif
}

// Seconds of `times` steps with VALUES values each on every thread; the best of a few, of which the first does not count.
template <class T, class Step> double seconds_of(int64_t times, int64_t threads, const T* given, T* out, Step step) {
  double best = 1e30;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const double before = now();
#pragma omp parallel for schedule(static, 1) num_threads((int)threads)
    for (int64_t t = 0; t < threads; ++t) {
      const T a = given[0], b = given[1];
      T x[VALUES<T>];
      for (int l = 0; l < VALUES<T>; ++l) x[l] = a + (T)l;
      for (int64_t k = 0; k < times; ++k) {
#pragma GCC unroll 16
        for (int l = 0; l < VALUES<T>; ++l) x[l] = step(x[l], a, b);
      }
      T sum = 0;
      for (int l = 0; l < VALUES<T>; ++l) sum += x[l];
      out[t] = sum;
    }
    const double took = now() - before;
    if (repeat && took < best) best = took;
  }
  return best;
}

template <class T> double seconds(int64_t kind, int64_t times, int64_t threads, const T* given, T* out) {
  switch (kind) {
    case 0: return seconds_of(times, threads, given, out, [](T x, T a, T b) { return multiply_add(x, a, b); });
    case 1: return seconds_of(times, threads, given, out, [](T x, T a, T) { return a / x; });
    case 2: return seconds_of(times, threads, given, out, [](T x, T a, T) { return std::sqrt(x + a); });
    default: return seconds_of(times, threads, given, out, [](T x, T, T) { return std::exp(-x); });
  }
}
}  // namespace

extern "C" {
int peak_float64(int64_t kind, int64_t times, int64_t threads, const double* given, double* out, double* taken) {
  *taken = seconds(kind, times, threads, given, out);
  return 0;
}
int peak_float32(int64_t kind, int64_t times, int64_t threads, const float* given, float* out, double* taken) {
  *taken = seconds(kind, times, threads, given, out);
  return 0;
}
}
