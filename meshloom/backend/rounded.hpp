// A product that is rounded before anything is added to it, whatever the compiler may do elsewhere. Where there is an
// instruction for a*b + c it is that one, with -0.0 for c: the bits of a*b, which no compiler takes apart (GCC's
// __builtin_assoc_barrier is lost when a loop is vectorised). Where there is none, nothing can be contracted.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
inline double ml_times(double a, double b) { return __builtin_fma(a, b, -0.0); }
inline float ml_times(float a, float b) { return __builtin_fmaf(a, b, -0.0f); }
#else
inline double ml_times(double a, double b) { return a * b; }
inline float ml_times(float a, float b) { return a * b; }
#endif
