// What a device does at most: every thread goes on with eight values that do not wait for each other. values[0] and
// values[1] are numbers that no compiler knows; each thread stores what came out behind them.
#define ML_PEAK(NAME, T, STEP)                                                                  \
  extern "C" __global__ void NAME(T* values, int times) {                                       \
    const int at = blockIdx.x * blockDim.x + threadIdx.x;                                       \
    const T a = values[0], b = values[1];                                                       \
    T x[8], sum = b;                                                                            \
    _Pragma("unroll") for (int l = 0; l < 8; ++l) x[l] = a + (T)(threadIdx.x + l);              \
    for (int k = 0; k < times; ++k) { _Pragma("unroll") for (int l = 0; l < 8; ++l) x[l] = STEP; } \
    _Pragma("unroll") for (int l = 0; l < 8; ++l) sum += x[l];                                  \
    values[2 + at] = sum;                                                                       \
  }

// Updates of a million numbers, which lie in a cache; neighbours take neighbours.
#define ML_PEAK_ATOMIC(NAME, T)                                                                 \
  extern "C" __global__ void NAME(T* values, int times) {                                       \
    const int at = blockIdx.x * blockDim.x + threadIdx.x;                                       \
    const T b = values[1];                                                                      \
    for (int k = 0; k < 8 * times; ++k) atomicAdd(values + 2 + ((at + 8192 * k) & 0xfffff), b); \
  }

ML_PEAK(multiply_add_float64, double, fma(x[l], a, b))
ML_PEAK(multiply_add_float32, float, fmaf(x[l], a, b))
ML_PEAK(division_float64, double, a / x[l])
ML_PEAK(division_float32, float, a / x[l])
ML_PEAK(square_root_float64, double, sqrt(x[l] + a))
ML_PEAK(square_root_float32, float, sqrtf(x[l] + a))
ML_PEAK(special_float64, double, exp(-x[l]))
ML_PEAK(special_float32, float, expf(-x[l]))
ML_PEAK_ATOMIC(atomic_update_float64, double)
ML_PEAK_ATOMIC(atomic_update_float32, float)
