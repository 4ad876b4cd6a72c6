// The words of CUDA, and of the prelude where that speaks PTX, for a CPU's compiler.
template <class T> inline T ml_from(T value, int lane) { return ml_shown(value, lane); }
template <class T> inline T ml_lane(T value, int mask) { return ml_shown(value, (int)(threadIdx.x ^ (unsigned)mask)); }
inline unsigned char* ml_dynamic_shared() { return ml_shared_start(); }
template <class U> inline U ml_peek(U* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
inline void ml_prefetch(const void* p, int bytes) {  // reads, so that tools see what is asked for
  for (int k = 0; k < bytes; ++k) (void)((const volatile char*)p)[k];
}
