// The airfoil residual loop written by hand in CUDA, three ways: what a careful engineer writes for this one loop.
//
//   owner     one thread per cell; it evaluates the fluxes of its edges from its own side, 16-byte loads, AoS
//   atomic    one thread per edge, hardware atomics, SoA
//   two_step  fluxes to an array, then one thread per cell adds them up, AoS
//
// Cells of edge e: cells[2e], cells[2e+1]; nodes likewise. The edges of cell c are entries[offsets[c]] ..: 2e + side.
extern "C" {

__device__ __forceinline__ void flux(double dx, double dy, double mu, double a0, double a1, double a2, double a3,
                                     double b0, double b1, double b2, double b3, double* f) {
  const double gm1 = 0.4, ra = 1.0 / a0, rb = 1.0 / b0;
  const double pa = gm1 * (a3 - 0.5 * ra * (a1 * a1 + a2 * a2)), va = 0.5 * ra * (a1 * dy - a2 * dx);
  const double pb = gm1 * (b3 - 0.5 * rb * (b1 * b1 + b2 * b2)), vb = 0.5 * rb * (b1 * dy - b2 * dx);
  const double p = 0.5 * (pa + pb), ca = va + mu, cb = vb - mu;
  f[0] = ca * a0 + cb * b0;
  f[1] = ca * a1 + cb * b1 + p * dy;
  f[2] = ca * a2 + cb * b2 - p * dx;
  f[3] = ca * a3 + cb * b3 + (va * pa + vb * pb);
}

__device__ __forceinline__ void aos_flux(const double2* __restrict__ x, const double2* __restrict__ q,
                                         const double* __restrict__ adt, int2 n, int2 c, double* f) {
  const double2 x0 = x[n.x], x1 = x[n.y];
  const double2 a01 = q[2 * c.x], a23 = q[2 * c.x + 1], b01 = q[2 * c.y], b23 = q[2 * c.y + 1];
  flux(x0.x - x1.x, x0.y - x1.y, 0.025 * (adt[c.x] + adt[c.y]), a01.x, a01.y, a23.x, a23.y, b01.x, b01.y, b23.x, b23.y, f);
}

__global__ void __launch_bounds__(128) owner(const double2* __restrict__ x, const double2* __restrict__ q,
                                             const double* __restrict__ adt, double2* __restrict__ res,
                                             const int2* __restrict__ nodes, const int2* __restrict__ cells,
                                             const int* __restrict__ offsets, const int* __restrict__ entries, int n) {
  const int t = blockIdx.x * 128 + threadIdx.x;
  if (t >= n) return;
  double2 r0 = res[2 * t], r1 = res[2 * t + 1];
  for (int k = offsets[t], last = offsets[t + 1]; k < last; ++k) {
    const int entry = entries[k];
    double f[4];
    aos_flux(x, q, adt, nodes[entry >> 1], cells[entry >> 1], f);
    const double s = entry & 1 ? -1.0 : 1.0;
    r0.x += s * f[0], r0.y += s * f[1], r1.x += s * f[2], r1.y += s * f[3];
  }
  res[2 * t] = r0, res[2 * t + 1] = r1;
}

__global__ void __launch_bounds__(128) atomic(const double* __restrict__ x, const double* __restrict__ q,
                                              const double* __restrict__ adt, double* __restrict__ res,
                                              const int2* __restrict__ nodes, const int2* __restrict__ cells, int n,
                                              int xs, int qs) {
  const int e = blockIdx.x * 128 + threadIdx.x;
  if (e >= n) return;
  const int2 m = nodes[e], c = cells[e];
  double f[4];
  flux(x[m.x] - x[m.y], x[xs + m.x] - x[xs + m.y], 0.025 * (adt[c.x] + adt[c.y]), q[c.x], q[qs + c.x], q[2 * qs + c.x],
       q[3 * qs + c.x], q[c.y], q[qs + c.y], q[2 * qs + c.y], q[3 * qs + c.y], f);
  for (int k = 0; k < 4; ++k) {
    atomicAdd(res + k * qs + c.x, f[k]);
    atomicAdd(res + k * qs + c.y, -f[k]);
  }
}

__global__ void __launch_bounds__(128) fluxes(const double2* __restrict__ x, const double2* __restrict__ q,
                                              const double* __restrict__ adt, double2* __restrict__ stage,
                                              const int2* __restrict__ nodes, const int2* __restrict__ cells, int n) {
  const int e = blockIdx.x * 128 + threadIdx.x;
  if (e >= n) return;
  double f[4];
  aos_flux(x, q, adt, nodes[e], cells[e], f);
  stage[2 * e] = make_double2(f[0], f[1]), stage[2 * e + 1] = make_double2(f[2], f[3]);
}

__global__ void __launch_bounds__(128) gather(const double2* __restrict__ stage, double2* __restrict__ res,
                                              const int* __restrict__ offsets, const int* __restrict__ entries, int n) {
  const int t = blockIdx.x * 128 + threadIdx.x;
  if (t >= n) return;
  double2 r0 = res[2 * t], r1 = res[2 * t + 1];
  for (int k = offsets[t], last = offsets[t + 1]; k < last; ++k) {
    const int entry = entries[k], e = entry >> 1;
    const double s = entry & 1 ? -1.0 : 1.0;
    const double2 f0 = stage[2 * e], f1 = stage[2 * e + 1];
    r0.x += s * f0.x, r0.y += s * f0.y, r1.x += s * f1.x, r1.y += s * f1.y;
  }
  res[2 * t] = r0, res[2 * t + 1] = r1;
}
}
