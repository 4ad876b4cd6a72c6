// Algorithms 5 to 11 of the graph-coloring paper as it prints them: what one thread does, and the kernel round it. One
// launch is one group of faces of a color, `size` of them from place `first` of the list faceGroup on.
//
//   plain_sum, plain_max     5 and 6; with renumbered tables 9 and 10: launches and bodies are the same
//   shared_sum, shared_max   7 and 8: what a face reads goes through the thread's own slots of shared memory. They are
//                            volatile, or the compiler would keep the value in a register and leave shared memory out
//   in_color_order           what comes before 11: flux to the order of the list
//   ordered_sum              11: owner and neighbor still by way of the list, the flux as it lies
//
// NUMBER is float or double, COMPONENTS the unknowns of a cell (SoA). `given`: flux of the faces, or ps of the cells;
// `changed`: res or plmax. Without a compiler for GPUs the same text is a loop over the threads on all cores.
#define PARAMETERS const int *__restrict__ faceGroup, const int *__restrict__ owner, const int *__restrict__ neighbor, \
                   const NUMBER *__restrict__ given, NUMBER *__restrict__ changed, int first, int size, int faces, int cells
#define ARGUMENTS faceGroup, owner, neighbor, given, changed, first, size, faces, cells

#ifdef __CUDACC__
#define THREAD __device__ __forceinline__ void
#define KERNEL(name)                                                                                     \
  extern "C" __global__ void name(PARAMETERS) {                                                          \
    extern __shared__ __align__(16) unsigned char room[];                                                           \
    const int t = blockIdx.x * blockDim.x + threadIdx.x;                                                 \
    if (t < size) thread_##name(t, (volatile NUMBER*)room + threadIdx.x, (int)blockDim.x, ARGUMENTS);    \
  }
#else
#define THREAD static inline void
#define KERNEL(name)                                       \
  extern "C" void name(PARAMETERS) {                       \
    _Pragma("omp parallel for schedule(static)")           \
    for (int t = 0; t < size; ++t) {                       \
      volatile NUMBER own[2 * COMPONENTS];                 \
      thread_##name(t, own, 1, ARGUMENTS);                 \
    }                                                      \
  }
#endif

#define THREAD_OF(name) THREAD thread_##name(int t, volatile NUMBER* slots, int apart, PARAMETERS)

THREAD_OF(plain_sum) {
  const int face = faceGroup[first + t], own = owner[face], ngb = neighbor[face];
  for (int k = 0; k < COMPONENTS; ++k) {
    const NUMBER flux = given[k * faces + face];
    changed[k * cells + own] += flux;
    changed[k * cells + ngb] -= flux;
  }
}

THREAD_OF(plain_max) {
  const int face = faceGroup[first + t], own = owner[face], ngb = neighbor[face];
  for (int k = 0; k < COMPONENTS; ++k) {
    const NUMBER at_own = given[k * cells + own], at_ngb = given[k * cells + ngb];
    const NUMBER old_own = changed[k * cells + own], old_ngb = changed[k * cells + ngb];
    changed[k * cells + own] = old_own > at_ngb ? old_own : at_ngb;
    changed[k * cells + ngb] = old_ngb > at_own ? old_ngb : at_own;
  }
}

THREAD_OF(shared_sum) {
  const int face = faceGroup[first + t], own = owner[face], ngb = neighbor[face];
  for (int k = 0; k < COMPONENTS; ++k) slots[k * apart] = given[k * faces + face];
  for (int k = 0; k < COMPONENTS; ++k) {
    changed[k * cells + own] += slots[k * apart];
    changed[k * cells + ngb] -= slots[k * apart];
  }
}

THREAD_OF(shared_max) {
  const int face = faceGroup[first + t], own = owner[face], ngb = neighbor[face];
  for (int k = 0; k < COMPONENTS; ++k) {
    slots[2 * k * apart] = given[k * cells + ngb];
    slots[(2 * k + 1) * apart] = given[k * cells + own];
  }
  for (int k = 0; k < COMPONENTS; ++k) {
    const NUMBER old_own = changed[k * cells + own], at_ngb = slots[2 * k * apart];
    changed[k * cells + own] = old_own > at_ngb ? old_own : at_ngb;
    const NUMBER old_ngb = changed[k * cells + ngb], at_own = slots[(2 * k + 1) * apart];
    changed[k * cells + ngb] = old_ngb > at_own ? old_ngb : at_own;
  }
}

THREAD_OF(in_color_order) {
  for (int k = 0; k < COMPONENTS; ++k) changed[k * faces + first + t] = given[k * faces + faceGroup[first + t]];
}

THREAD_OF(ordered_sum) {
  const int face = faceGroup[first + t], own = owner[face], ngb = neighbor[face];
  for (int k = 0; k < COMPONENTS; ++k) {
    const NUMBER flux = given[k * faces + first + t];
    changed[k * cells + own] += flux;
    changed[k * cells + ngb] -= flux;
  }
}

KERNEL(plain_sum)
KERNEL(plain_max)
KERNEL(shared_sum)
KERNEL(shared_max)
KERNEL(in_color_order)
KERNEL(ordered_sum)
