// The airfoil residual loop written by hand in CUDA, four ways: what a careful engineer writes for this one loop.
//
//   rings     two threads per cell, which knows its quadrilaterals' neighbours and nodes in order; 16-byte loads, AoS
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

// near (4 per cell): the cell behind each side, -1 for none, -2 in cells whose sides do not close; ring: the node at which each
// side begins. Cells that do not close follow offsets and entries.
__global__ void __launch_bounds__(128) rings(const double2* __restrict__ x, const double2* __restrict__ q,
                                             const double* __restrict__ adt, double2* __restrict__ res,
                                             const int2* __restrict__ near, const int2* __restrict__ ring,
                                             const int2* __restrict__ nodes, const int2* __restrict__ cells,
                                             const int* __restrict__ offsets, const int* __restrict__ entries, int n) {
  const int i = blockIdx.x * 128 + threadIdx.x, lane = i & 1, t = min(i >> 1, n - 1);
  const int2 c = near[2 * t + lane], m = ring[2 * t + lane];
  const double2 x0 = x[m.x], x1 = x[m.y];
  const int c0 = c.x < 0 ? t : c.x, c1 = c.y < 0 ? t : c.y;
  const double2 b0 = q[2 * c0], b1 = q[2 * c0 + 1], d0 = q[2 * c1], d1 = q[2 * c1 + 1];
  const double2 a0 = q[2 * t], a1 = q[2 * t + 1];
  const double at = adt[t], bt = adt[c0], dt = adt[c1];
  double2 r = res[2 * t + lane];
  double2 x2;
  x2.x = __shfl_xor_sync(0xffffffffu, x0.x, 1), x2.y = __shfl_xor_sync(0xffffffffu, x0.y, 1);
  double f[4], g[4], sum[4];
  flux(x0.x - x1.x, x0.y - x1.y, 0.025 * (at + bt), a0.x, a0.y, a1.x, a1.y, b0.x, b0.y, b1.x, b1.y, f);
  flux(x1.x - x2.x, x1.y - x2.y, 0.025 * (at + dt), a0.x, a0.y, a1.x, a1.y, d0.x, d0.y, d1.x, d1.y, g);
  for (int k = 0; k < 4; ++k) sum[k] = (c.x < 0 ? 0.0 : f[k]) + (c.y < 0 ? 0.0 : g[k]);
  if (c.x == -2 && lane == 0)
    for (int k = offsets[t], last = offsets[t + 1]; k < last; ++k) {
      const int entry = entries[k];
      aos_flux(x, q, adt, nodes[entry >> 1], cells[entry >> 1], f);
      for (int j = 0; j < 4; ++j) sum[j] += entry & 1 ? -f[j] : f[j];
    }
  for (int k = 0; k < 4; ++k) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], 1);
  r.x += lane ? sum[2] : sum[0], r.y += lane ? sum[3] : sum[1];
  if (i >> 1 < n) res[2 * t + lane] = r;
}
}
