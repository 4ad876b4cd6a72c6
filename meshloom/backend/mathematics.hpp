// The functions of C that generated code calls, for both precisions. ML_C spells those of the compiler at hand.
namespace std {
#define ML_MATH1(NAME) \
  ML_FUNCTION double NAME(double a) { return ML_C(NAME)(a); } \
  ML_FUNCTION float NAME(float a) { return ML_C(NAME##f)(a); }
#define ML_MATH2(NAME) \
  ML_FUNCTION double NAME(double a, double b) { return ML_C(NAME)(a, b); } \
  ML_FUNCTION float NAME(float a, float b) { return ML_C(NAME##f)(a, b); }
ML_MATH1(sqrt) ML_MATH1(cbrt) ML_MATH1(exp) ML_MATH1(exp2) ML_MATH1(expm1) ML_MATH1(log) ML_MATH1(log2)
ML_MATH1(log10) ML_MATH1(log1p) ML_MATH1(sin) ML_MATH1(cos) ML_MATH1(tan) ML_MATH1(asin) ML_MATH1(acos)
ML_MATH1(atan) ML_MATH1(sinh) ML_MATH1(cosh) ML_MATH1(tanh) ML_MATH1(floor) ML_MATH1(ceil) ML_MATH1(trunc)
ML_MATH1(nearbyint) ML_MATH1(fabs) ML_MATH2(hypot) ML_MATH2(atan2) ML_MATH2(copysign) ML_MATH2(fmod) ML_MATH2(pow)
ML_FUNCTION double fma(double a, double b, double c) { return ML_C(fma)(a, b, c); }
ML_FUNCTION float fma(float a, float b, float c) { return ML_C(fmaf)(a, b, c); }
template <class T> ML_FUNCTION bool isnan(T a) { return a != a; }
template <class T> ML_FUNCTION bool isinf(T a) { return a == (T)INFINITY || a == -(T)INFINITY; }
template <class T> ML_FUNCTION bool isfinite(T a) { return !(isnan(a) || isinf(a)); }
}  // namespace std
