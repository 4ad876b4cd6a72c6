// Six loops of the zoo (bench/zoo) written by hand in C++17 with OpenMP, on data as the loops have it: AoS, in double.
//
// A loop is a struct: what one element computes, and what each of its targets is given of that. Forms without a race
// condition are one template each:
//   blocks    contiguous blocks of elements; blocks that share a target differ in color; one parallel loop per color.
//             One block of all elements is the serial loop
//   vectors   the same, but a few elements at a time are computed in vector registers into a buffer, then scattered
//   gather    what elements compute goes to an array, by vectors, too; then every target adds up what is its own
//   owner     every target visits its elements, and computes what it gets of them from the other end of each: nothing
//             is stored; for loops between two ends whose values cost nothing to compute twice
//
// Reciprocals are shared, constant factors folded, and terms that elements have in common computed once.

#include <algorithm>
#include <cmath>
#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

#define INLINE inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 32")

extern "C" {

struct Fields {
  int64_t elements, targets;
  const double *geometry, *state;  // of nodes or elements; of targets
  const int32_t* map;              // (elements, slots)
  double *first, *second;          // what is written, on the targets
};

struct Blocks {  // of `block` elements each; those of color k are order[offsets[k]] .. order[offsets[k+1]-1]
  int64_t block, colors;
  const int64_t *offsets, *order;
};

struct Incidence {  // the elements of target t are entries[offsets[t]] .. : slots*element + slot
  const int64_t* offsets;
  const int32_t *entries, *others;  // others: the target at the other end, where elements have two
  double* values;                   // (elements, values), scratch
};

}  // extern "C"

namespace {

// ----- loops -------------------------------------------------------------------------------------------------------
// `slots` targets of an element, which computes `values` numbers; each target has `width`.

// Row i of an array of W columns. By index: gcc makes no vector of loads through a pointer to the row.
template <int W>
INLINE void row(const double* rows, int64_t i, double* found) {
  UNROLLED for (int k = 0; k < W; ++k) found[k] = rows[W * i + k];
}

template <int W>
struct Sums {  // in one array
  static constexpr int width = W;
  INLINE static void load(const Fields& f, int64_t t, double* sum) {
    UNROLLED for (int k = 0; k < W; ++k) sum[k] = f.first[W * t + k];
  }
  INLINE static void store(const Fields& f, int64_t t, const double* sum) {
    UNROLLED for (int k = 0; k < W; ++k) f.first[W * t + k] = sum[k];
  }
};

template <int W>
struct Opposite : Sums<W> {  // the second target loses what the first one gets
  static constexpr int slots = 2, values = W;
  INLINE static void give(const double* v, int slot, double* sum) {
    UNROLLED for (int k = 0; k < W; ++k) sum[k] += slot ? -v[k] : v[k];
  }
};

// grad(phi_k) = c_k / det with cofactors c_k, so that r_k = c_k . (sum_j c_j (u_j - u_0)) / (6 det).
struct p1_tetrahedron : Sums<1> {
  static constexpr int slots = 4, values = 4;
  INLINE static void element(const Fields& f, int64_t e, double* v) {
    const int64_t n0 = f.map[4 * e], n1 = f.map[4 * e + 1], n2 = f.map[4 * e + 2], n3 = f.map[4 * e + 3];
    double p[3], x1[3], x2[3], x3[3];
    row<3>(f.geometry, n0, p), row<3>(f.geometry, n1, x1), row<3>(f.geometry, n2, x2), row<3>(f.geometry, n3, x3);
    const double px = p[0], py = p[1], pz = p[2], u = f.state[n0];
    const double ax = x1[0] - px, ay = x1[1] - py, az = x1[2] - pz;
    const double bx = x2[0] - px, by = x2[1] - py, bz = x2[2] - pz;
    const double cx = x3[0] - px, cy = x3[1] - py, cz = x3[2] - pz;
    const double ux = by * cz - bz * cy, uy = bz * cx - bx * cz, uz = bx * cy - by * cx;
    const double vx = cy * az - cz * ay, vy = cz * ax - cx * az, vz = cx * ay - cy * ax;
    const double wx = ay * bz - az * by, wy = az * bx - ax * bz, wz = ax * by - ay * bx;
    const double scale = 1.0 / (6.0 * (ax * ux + ay * uy + az * uz));
    const double d1 = scale * (f.state[n1] - u), d2 = scale * (f.state[n2] - u), d3 = scale * (f.state[n3] - u);
    const double sx = ux * d1 + vx * d2 + wx * d3, sy = uy * d1 + vy * d2 + wy * d3, sz = uz * d1 + vz * d2 + wz * d3;
    v[1] = ux * sx + uy * sy + uz * sz;
    v[2] = vx * sx + vy * sy + vz * sz;
    v[3] = wx * sx + wy * sy + wz * sz;
    v[0] = -(v[1] + v[2] + v[3]);
  }
  INLINE static void give(const double* v, int slot, double* sum) { sum[0] += v[slot]; }
};

// One point of quadrature: derivatives are sums and differences of corners, and forces of opposite corners, too.
struct elastic_hexahedron : Sums<3> {
  static constexpr int slots = 8, values = 24;
  static constexpr double lambda = 1.2, mu = 0.8;

  // Eight times the derivatives along the three reference axes, of component c.
  INLINE static void slopes(const double* rows, const int64_t* n, int c, double* d) {
    const double a0 = rows[3 * n[0] + c], a1 = rows[3 * n[1] + c], a2 = rows[3 * n[2] + c], a3 = rows[3 * n[3] + c];
    const double b0 = rows[3 * n[4] + c], b1 = rows[3 * n[5] + c], b2 = rows[3 * n[6] + c], b3 = rows[3 * n[7] + c];
    const double s0 = a0 + a1, s1 = a2 + a3, t0 = b0 + b1, t1 = b2 + b3;
    d[0] = ((a1 - a0) + (a2 - a3)) + ((b1 - b0) + (b2 - b3));
    d[1] = (s1 - s0) + (t1 - t0);
    d[2] = (t0 + t1) - (s0 + s1);
  }

  INLINE static void element(const Fields& f, int64_t e, double* v) {
    int64_t n[8];
    UNROLLED for (int k = 0; k < 8; ++k) n[k] = f.map[8 * e + k];
    double x[3][3], g[3][3];  // [component][reference axis]
    UNROLLED for (int c = 0; c < 3; ++c) slopes(f.geometry, n, c, x[c]);
    UNROLLED for (int c = 0; c < 3; ++c) slopes(f.state, n, c, g[c]);
    double m[3][3];  // cofactors: m[a][b] / det is d(xi_a) / d(x_b), times 8
    UNROLLED for (int a = 0; a < 3; ++a) {
      const int p = (a + 1) % 3, q = (a + 2) % 3;
      m[a][0] = x[1][p] * x[2][q] - x[2][p] * x[1][q];
      m[a][1] = x[2][p] * x[0][q] - x[0][p] * x[2][q];
      m[a][2] = x[0][p] * x[1][q] - x[1][p] * x[0][q];
    }
    const double det = x[0][0] * m[0][0] + x[1][0] * m[0][1] + x[2][0] * m[0][2];
    // Weight 8, det / 512, the inverse (m / det) * 8 twice, derivatives / 8 twice: 1 / (64 det) in all.
    const double scale = 1.0 / (64.0 * det);
    double s[3][3];  // of the displacement, [component][axis]
    UNROLLED for (int c = 0; c < 3; ++c) {
      UNROLLED for (int b = 0; b < 3; ++b) {
        s[c][b] = scale * (g[c][0] * m[0][b] + g[c][1] * m[1][b] + g[c][2] * m[2][b]);
      }
    }
    const double pressure = lambda * (s[0][0] + s[1][1] + s[2][2]);
    const double xx = pressure + 2 * mu * s[0][0], yy = pressure + 2 * mu * s[1][1], zz = pressure + 2 * mu * s[2][2];
    const double xy = mu * (s[0][1] + s[1][0]), yz = mu * (s[1][2] + s[2][1]), xz = mu * (s[0][2] + s[2][0]);
    const double stress[3][3] = {{xx, xy, xz}, {xy, yy, yz}, {xz, yz, zz}};
    UNROLLED for (int c = 0; c < 3; ++c) {
      double h[3];
      UNROLLED for (int a = 0; a < 3; ++a) {
        h[a] = m[a][0] * stress[c][0] + m[a][1] * stress[c][1] + m[a][2] * stress[c][2];
      }
      const double sum = h[0] + h[1], difference = h[0] - h[1];
      v[3 * 6 + c] = h[2] + sum, v[3 * 0 + c] = -(h[2] + sum);
      v[3 * 7 + c] = h[2] - difference, v[3 * 1 + c] = difference - h[2];
      v[3 * 4 + c] = h[2] - sum, v[3 * 2 + c] = sum - h[2];
      v[3 * 5 + c] = h[2] + difference, v[3 * 3 + c] = -(h[2] + difference);
    }
  }
  INLINE static void give(const double* v, int slot, double* sum) {
    UNROLLED for (int c = 0; c < 3; ++c) sum[c] += v[3 * slot + c];
  }
};

// Rusanov's flux, factored so that each state is multiplied once: (v_a + w)/2 q_a + (v_b - w)/2 q_b + pressure terms.
struct edge_flux : Opposite<5> {
  static constexpr double gamma = 1.4;
  INLINE static void element(const Fields& f, int64_t e, double* v) {
    double a[5], b[5];
    row<5>(f.state, f.map[2 * e], a), row<5>(f.state, f.map[2 * e + 1], b);
    const double nx = f.geometry[3 * e], ny = f.geometry[3 * e + 1], nz = f.geometry[3 * e + 2];
    const double area = std::sqrt(nx * nx + ny * ny + nz * nz), ra = 1.0 / a[0], rb = 1.0 / b[0];
    const double pa = (gamma - 1) * (a[4] - 0.5 * ra * (a[1] * a[1] + a[2] * a[2] + a[3] * a[3]));
    const double pb = (gamma - 1) * (b[4] - 0.5 * rb * (b[1] * b[1] + b[2] * b[2] + b[3] * b[3]));
    const double va = ra * (a[1] * nx + a[2] * ny + a[3] * nz), vb = rb * (b[1] * nx + b[2] * ny + b[3] * nz);
    const double wa = std::fabs(va) + area * std::sqrt(gamma * pa * ra);
    const double wb = std::fabs(vb) + area * std::sqrt(gamma * pb * rb), w = wa > wb ? wa : wb;
    const double ca = 0.5 * (va + w), cb = 0.5 * (vb - w), p = 0.5 * (pa + pb);
    v[0] = ca * a[0] + cb * b[0];
    v[1] = ca * a[1] + cb * b[1] + p * nx;
    v[2] = ca * a[2] + cb * b[2] + p * ny;
    v[3] = ca * a[3] + cb * b[3] + p * nz;
    v[4] = ca * a[4] + cb * b[4] + 0.5 * (va * pa + vb * pb);
  }
};

struct green_gauss : Opposite<3> {
  INLINE static void element(const Fields& f, int64_t e, double* v) {
    const double middle = 0.5 * (f.state[f.map[2 * e]] + f.state[f.map[2 * e + 1]]);
    UNROLLED for (int k = 0; k < 3; ++k) v[k] = middle * f.geometry[3 * e + k];
  }
  INLINE static void pull(const Fields& f, int64_t t, int32_t entry, int64_t other, double* sum) {
    const double middle = 0.5 * (f.state[t] + f.state[other]), side = entry & 1 ? -middle : middle;
    const double* n = f.geometry + 3 * int64_t(entry >> 1);
    UNROLLED for (int k = 0; k < 3; ++k) sum[k] += side * n[k];
  }
};

// Both ends get what the other one has: minima, then maxima.
struct limiter_bounds {
  static constexpr int slots = 2, values = 10, width = 10;
  INLINE static void load(const Fields& f, int64_t t, double* sum) {
    UNROLLED for (int k = 0; k < 5; ++k) sum[k] = f.first[5 * t + k], sum[5 + k] = f.second[5 * t + k];
  }
  INLINE static void store(const Fields& f, int64_t t, const double* sum) {
    UNROLLED for (int k = 0; k < 5; ++k) f.first[5 * t + k] = sum[k], f.second[5 * t + k] = sum[5 + k];
  }
  INLINE static void element(const Fields& f, int64_t e, double* v) {
    row<5>(f.state, f.map[2 * e + 1], v), row<5>(f.state, f.map[2 * e], v + 5);
  }
  INLINE static void give(const double* v, int slot, double* sum) { bounds(v + 5 * slot, sum); }
  INLINE static void pull(const Fields& f, int64_t, int32_t, int64_t other, double* sum) {
    bounds(f.state + 5 * other, sum);
  }
  INLINE static void bounds(const double* q, double* sum) {
    UNROLLED for (int k = 0; k < 5; ++k) sum[k] = std::min(sum[k], q[k]), sum[5 + k] = std::max(sum[5 + k], q[k]);
  }
};

struct exchanged_over_links : Sums<1> {
  static constexpr int slots = 2, values = 2;
  INLINE static void element(const Fields& f, int64_t e, double* v) {
    v[0] = f.state[f.map[2 * e + 1]], v[1] = f.state[f.map[2 * e]];
  }
  INLINE static void give(const double* v, int slot, double* sum) { sum[0] += v[slot]; }
  INLINE static void pull(const Fields& f, int64_t, int32_t, int64_t other, double* sum) { sum[0] += f.state[other]; }
};

// ----- forms -------------------------------------------------------------------------------------------------------

template <class Loop>
INLINE void scatter(const Fields& f, int64_t e, const double* v) {
  UNROLLED for (int slot = 0; slot < Loop::slots; ++slot) {
    const int64_t t = f.map[Loop::slots * e + slot];
    double sum[Loop::width];
    Loop::load(f, t, sum);
    Loop::give(v, slot, sum);
    Loop::store(f, t, sum);
  }
}

constexpr int batch = 32;  // elements in a buffer

// The values of elements from .. from + count - 1, at v[value * batch + element]. A function of its own: compilers keep
// the promise of restrict for parameters alone.
template <class Loop>
__attribute__((noinline)) void by_vectors(const Fields f, int64_t from, int64_t count, double* __restrict v) {
#pragma GCC ivdep  // not omp simd: gcc then keeps an array for every lane, and makes no vectors
  for (int64_t i = 0; i < count; ++i) {
    double one[Loop::values];
    Loop::element(f, from + i, one);
    UNROLLED for (int k = 0; k < Loop::values; ++k) v[batch * k + i] = one[k];
  }
}

// Calls each(element, values) for elements from .. to - 1.
template <class Loop, class Each>
INLINE void batches(const Fields& f, int64_t from, int64_t to, Each each) {
  alignas(64) double v[batch * Loop::values];
  for (; from < to; from += batch) {
    const int64_t count = std::min<int64_t>(batch, to - from);
    by_vectors<Loop>(f, from, count, v);
    for (int64_t i = 0; i < count; ++i) {
      double one[Loop::values];
      UNROLLED for (int k = 0; k < Loop::values; ++k) one[k] = v[batch * k + i];
      each(from + i, one);
    }
  }
}

// Calls body(from, to) for all blocks, one color after the other.
template <class Body>
void colored(const Blocks& blocks, int64_t size, Body body) {
  for (int64_t color = 0; color < blocks.colors; ++color) {
#pragma omp parallel for schedule(static) if (blocks.offsets[color + 1] - blocks.offsets[color] > 1)
    for (int64_t k = blocks.offsets[color]; k < blocks.offsets[color + 1]; ++k) {
      const int64_t from = blocks.order[k] * blocks.block;
      body(from, std::min(from + blocks.block, size));
    }
  }
}

template <class Loop>
void run_blocks(const Fields& f, const Blocks& blocks) {
  colored(blocks, f.elements, [&f](int64_t from, int64_t to) {
    for (int64_t e = from; e < to; ++e) {
      double one[Loop::values];
      Loop::element(f, e, one);
      scatter<Loop>(f, e, one);
    }
  });
}

template <class Loop>
void run_vectors(const Fields& f, const Blocks& blocks) {
  colored(blocks, f.elements, [&f](int64_t from, int64_t to) {
    batches<Loop>(f, from, to, [&f](int64_t e, const double* one) { scatter<Loop>(f, e, one); });
  });
}

template <class Loop>
void run_gather(const Fields& f, const Incidence& in) {
  constexpr int64_t block = 4096;
#pragma omp parallel for schedule(static)
  for (int64_t from = 0; from < f.elements; from += block) {
    batches<Loop>(f, from, std::min(from + block, f.elements), [&in](int64_t e, const double* one) {
      UNROLLED for (int k = 0; k < Loop::values; ++k) in.values[Loop::values * e + k] = one[k];
    });
  }
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < f.targets; ++t) {
    double sum[Loop::width];
    Loop::load(f, t, sum);
    for (int64_t k = in.offsets[t]; k < in.offsets[t + 1]; ++k) {
      const int32_t entry = in.entries[k];
      Loop::give(in.values + Loop::values * int64_t(entry / Loop::slots), entry % Loop::slots, sum);
    }
    Loop::store(f, t, sum);
  }
}

template <class Loop>
void run_owner(const Fields& f, const Incidence& in) {
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < f.targets; ++t) {
    double sum[Loop::width];
    Loop::load(f, t, sum);
    for (int64_t k = in.offsets[t]; k < in.offsets[t + 1]; ++k) Loop::pull(f, t, in.entries[k], in.others[k], sum);
    Loop::store(f, t, sum);
  }
}

}  // namespace

extern "C" {

void set_threads(int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);
#else
  (void)threads;
#endif
}

#define SCATTERED(LOOP)                                                                             \
  void LOOP##_blocks(const Fields* f, const Blocks* blocks) { run_blocks<LOOP>(*f, *blocks); }      \
  void LOOP##_vectors(const Fields* f, const Blocks* blocks) { run_vectors<LOOP>(*f, *blocks); }
#define GATHERED(LOOP) \
  void LOOP##_gather(const Fields* f, const Incidence* in) { run_gather<LOOP>(*f, *in); }
#define OWNED(LOOP) \
  void LOOP##_owner(const Fields* f, const Incidence* in) { run_owner<LOOP>(*f, *in); }

SCATTERED(p1_tetrahedron)
SCATTERED(elastic_hexahedron)
SCATTERED(edge_flux)
SCATTERED(green_gauss)
SCATTERED(limiter_bounds)
SCATTERED(exchanged_over_links)
GATHERED(p1_tetrahedron)
GATHERED(elastic_hexahedron)
GATHERED(edge_flux)
GATHERED(green_gauss)
OWNED(green_gauss)
OWNED(limiter_bounds)
OWNED(exchanged_over_links)

}  // extern "C"
