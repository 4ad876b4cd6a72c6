// The airfoil step written by hand in C++17 with OpenMP: what a careful engineer writes for this one case.
//
// save_soln, then twice: adt_calc, res_calc, bres_calc, update. All data AoS in double; constants float-rounded as in
// the original. Two race-free ways for res_calc:
//   block coloring   contiguous blocks of edges; blocks that share a cell differ in color; one parallel loop per color
//   gather           every edge writes its flux to an array, then every cell adds the fluxes of its edges
// and the whole stage fused, which is as far as fusion goes:
//   fused            a thread takes a chunk of cells, sums the fluxes of all edges that touch them in memory of its own
//                    (edges between two chunks are evaluated by both), and while that is in its cache moves the cells
//                    on and computes the next time step; states and time steps have two buffers, residuals none
//
// The flux is factored so that each state is multiplied once: f = (v1+mu) qa + (v2-mu) qb + pressure terms, with the
// halves folded into v. Loops over cells are marked simd; with -fno-math-errno (Meshloom's flags) the square roots
// vectorise. Tried and slower on x86-64: 8-wide flux into a small buffer before the scatter, and 4-wide vectors across
// the components; for the fused stage also every flux at both of its cells, vectorised over cells (slower in a first try).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

constexpr double gam = 1.4f, gm1 = gam - 1.0, cfl = 0.9f, eps = 0.05f;
constexpr int wall = 1;

}  // namespace

extern "C" {

struct Mesh {
  int64_t cells, edges, bedges;
  const double* x;
  const int32_t *cell_nodes, *edge_nodes, *edge_cells, *bedge_nodes, *bedge_cells, *bound;
  const double* qinf;
};

struct State {
  double *q, *qold, *adt, *res;
};

struct Blocks {  // of `block` elements each; those of color k are order[offsets[k]] .. order[offsets[k+1]-1]
  int64_t block, colors;
  const int64_t *offsets, *order;
};

struct Incidence {  // the edges of cell c are entries[offsets[c]] .. : 2*edge + (1 where c is the second cell)
  const int64_t* offsets;
  const int32_t* entries;
  double* flux;  // (edges, 4), scratch
};

// Of `chunk` cells each. The edges of chunk k begin at starts[2 k]: first those with both cells inside, from
// starts[2 k + 1] on those that leave it, turned so that the first cell is inside. Its boundary edges are
// bedges[bstarts[k]] .. bedges[bstarts[k + 1] - 1].
struct Chunks {
  int64_t chunk, chunks;
  const int64_t* starts;
  const int32_t *nodes, *cells;  // of the edges in that order
  const int64_t* bstarts;
  const int32_t* bedges;
  double *q_next, *adt_next;  // the second buffers
};

}  // extern "C"

namespace {

void save_soln(const Mesh& m, const State& s) {
  const double* __restrict q = s.q;
  double* __restrict qold = s.qold;
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < 4 * m.cells; ++i) qold[i] = q[i];
}

inline double side(double dx, double dy, double u, double v, double c) {
  return std::fabs(u * dy - v * dx) + c * std::sqrt(dx * dx + dy * dy);
}

inline double time_step(const double* x, const int32_t* n, const double* q) {
  const double r = 1.0 / q[0], u = r * q[1], v = r * q[2];
  const double c = std::sqrt(gam * gm1 * (r * q[3] - 0.5 * (u * u + v * v)));
  const double x0 = x[2 * n[0]], y0 = x[2 * n[0] + 1], x1 = x[2 * n[1]], y1 = x[2 * n[1] + 1];
  const double x2 = x[2 * n[2]], y2 = x[2 * n[2] + 1], x3 = x[2 * n[3]], y3 = x[2 * n[3] + 1];
  const double sum = side(x1 - x0, y1 - y0, u, v, c) + side(x2 - x1, y2 - y1, u, v, c) +
                     side(x3 - x2, y3 - y2, u, v, c) + side(x0 - x3, y0 - y3, u, v, c);
  return sum * (1.0 / cfl);
}

void adt_calc(const Mesh& m, const State& s) {
  const double *__restrict x = m.x, *__restrict q = s.q;
  const int32_t* __restrict nodes = m.cell_nodes;
  double* __restrict adt = s.adt;
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < m.cells; ++i) adt[i] = time_step(x, nodes + 4 * i, q + 4 * i);
}

// Flux from state a to state b through a face with (dx, dy); mu is the dissipation.
inline void face_flux(double dx, double dy, const double* a, const double* b, double mu, double* f) {
  const double ra = 1.0 / a[0], rb = 1.0 / b[0];
  const double pa = gm1 * (a[3] - 0.5 * ra * (a[1] * a[1] + a[2] * a[2])), va = 0.5 * ra * (a[1] * dy - a[2] * dx);
  const double pb = gm1 * (b[3] - 0.5 * rb * (b[1] * b[1] + b[2] * b[2])), vb = 0.5 * rb * (b[1] * dy - b[2] * dx);
  const double p = 0.5 * (pa + pb), ca = va + mu, cb = vb - mu;
  f[0] = ca * a[0] + cb * b[0];
  f[1] = ca * a[1] + cb * b[1] + p * dy;
  f[2] = ca * a[2] + cb * b[2] - p * dx;
  f[3] = ca * a[3] + cb * b[3] + (va * pa + vb * pb);
}

inline void edge_flux(const Mesh& m, const State& s, int64_t e, double* f) {
  const double *first = m.x + 2 * m.edge_nodes[2 * e], *second = m.x + 2 * m.edge_nodes[2 * e + 1];
  const int32_t a = m.edge_cells[2 * e], b = m.edge_cells[2 * e + 1];
  const double mu = 0.5 * eps * (s.adt[a] + s.adt[b]);
  face_flux(first[0] - second[0], first[1] - second[1], s.q + 4 * int64_t(a), s.q + 4 * int64_t(b), mu, f);
}

// Runs body(element) for all elements, one color of blocks after the other.
template <class Body>
void colored(const Blocks& blocks, int64_t size, Body body) {
  for (int64_t color = 0; color < blocks.colors; ++color) {
#pragma omp parallel for schedule(static)
    for (int64_t k = blocks.offsets[color]; k < blocks.offsets[color + 1]; ++k) {
      const int64_t from = blocks.order[k] * blocks.block, to = std::min(from + blocks.block, size);
      for (int64_t e = from; e < to; ++e) body(e);
    }
  }
}

void res_calc_colored(const Mesh& m, const State& s, const Blocks& blocks) {
  colored(blocks, m.edges, [&](int64_t e) {
    double f[4];
    edge_flux(m, s, e, f);
    double *a = s.res + 4 * int64_t(m.edge_cells[2 * e]), *b = s.res + 4 * int64_t(m.edge_cells[2 * e + 1]);
    a[0] += f[0], a[1] += f[1], a[2] += f[2], a[3] += f[3];
    b[0] -= f[0], b[1] -= f[1], b[2] -= f[2], b[3] -= f[3];
  });
}

void res_calc_gather(const Mesh& m, const State& s, const Incidence& incidence) {
  double* __restrict flux = incidence.flux;
#pragma omp parallel for schedule(static)
  for (int64_t e = 0; e < m.edges; ++e) {
    double f[4];
    edge_flux(m, s, e, f);
    for (int c = 0; c < 4; ++c) flux[4 * e + c] = f[c];
  }
  double* __restrict res = s.res;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < m.cells; ++i) {
    double sum[4] = {res[4 * i], res[4 * i + 1], res[4 * i + 2], res[4 * i + 3]};
    for (int64_t k = incidence.offsets[i]; k < incidence.offsets[i + 1]; ++k) {
      const int32_t entry = incidence.entries[k];
      const double sign = entry & 1 ? -1.0 : 1.0;
      const double* f = flux + 4 * int64_t(entry >> 1);
      for (int c = 0; c < 4; ++c) sum[c] += sign * f[c];
    }
    for (int c = 0; c < 4; ++c) res[4 * i + c] = sum[c];
  }
}

inline void boundary_flux(const Mesh& m, const double* q, const double* adt, int64_t e, double* res) {
  const double *first = m.x + 2 * m.bedge_nodes[2 * e], *second = m.x + 2 * m.bedge_nodes[2 * e + 1];
  const double dx = first[0] - second[0], dy = first[1] - second[1];
  const int64_t cell = m.bedge_cells[e];
  const double* own = q + 4 * cell;
  if (m.bound[e] == wall) {
    const double p = gm1 * (own[3] - 0.5 / own[0] * (own[1] * own[1] + own[2] * own[2]));
    res[1] += p * dy;
    res[2] -= p * dx;
  } else {
    double f[4];
    face_flux(dx, dy, own, m.qinf, eps * adt[cell], f);
    for (int c = 0; c < 4; ++c) res[c] += f[c];
  }
}

void bres_calc(const Mesh& m, const State& s, const Blocks& blocks) {
  colored(blocks, m.bedges, [&](int64_t e) { boundary_flux(m, s.q, s.adt, e, s.res + 4 * int64_t(m.bedge_cells[e])); });
}

double update(const Mesh& m, const State& s) {
  const double *__restrict qold = s.qold, *__restrict adt = s.adt;
  double *__restrict q = s.q, *__restrict res = s.res;
  double rms = 0.0;
#pragma omp parallel for simd schedule(static) reduction(+ : rms)
  for (int64_t i = 0; i < m.cells; ++i) {
    const double inverse = 1.0 / adt[i];
    for (int c = 0; c < 4; ++c) {
      const double del = inverse * res[4 * i + c];
      q[4 * i + c] = qold[4 * i + c] - del;
      res[4 * i + c] = 0.0;
      rms += del * del;
    }
  }
  return rms;
}

template <class ResCalc>
void iterate(const Mesh& m, const State& s, const Blocks& boundary, int64_t iterations, double* rms, ResCalc res_calc) {
  for (int64_t i = 0; i < iterations; ++i) {
    save_soln(m, s);
    for (int stage = 0; stage < 2; ++stage) {
      adt_calc(m, s);
      res_calc();
      bres_calc(m, s, boundary);
      rms[i] = std::sqrt(update(m, s) / double(m.cells));
    }
  }
}

// ----- fused -------------------------------------------------------------------------------------------------------
// Parts of a chunk are functions of their own: compilers keep the promise of restrict for parameters alone.

template <bool both>
__attribute__((noinline)) void sum_fluxes(const double* __restrict x, const int32_t* __restrict nodes,
                                          const int32_t* __restrict cells, const double* __restrict q,
                                          const double* __restrict adt, double* __restrict res, int64_t edge,
                                          int64_t last, int64_t from) {
  for (; edge < last; ++edge) {
    const double *first = x + 2 * nodes[2 * edge], *second = x + 2 * nodes[2 * edge + 1];
    const int64_t a = cells[2 * edge], b = cells[2 * edge + 1];
    double f[4];
    face_flux(first[0] - second[0], first[1] - second[1], q + 4 * a, q + 4 * b, 0.5 * eps * (adt[a] + adt[b]), f);
    double *ra = res + 4 * (a - from), *rb = res + 4 * (b - from);
    ra[0] += f[0], ra[1] += f[1], ra[2] += f[2], ra[3] += f[3];
    if (both) rb[0] -= f[0], rb[1] -= f[1], rb[2] -= f[2], rb[3] -= f[3];
  }
}

// q may be qold: every cell reads its own alone.
__attribute__((noinline)) double move_on(int64_t cells, const double* __restrict adt, const double* __restrict res,
                                         const double* qold, double* q) {
  double rms = 0.0;
#pragma omp simd reduction(+ : rms)
  for (int64_t i = 0; i < cells; ++i) {
    const double inverse = 1.0 / adt[i];
    for (int c = 0; c < 4; ++c) {
      const double del = inverse * res[4 * i + c];
      q[4 * i + c] = qold[4 * i + c] - del;
      rms += del * del;
    }
  }
  return rms;
}

__attribute__((noinline)) void time_steps(int64_t cells, const double* __restrict x, const int32_t* __restrict nodes,
                                          const double* __restrict q, double* __restrict adt) {
#pragma omp simd
  for (int64_t i = 0; i < cells; ++i) adt[i] = time_step(x, nodes + 4 * i, q + 4 * i);
}

constexpr int64_t few = 512;  // cells whose new states are still in the nearest cache when their time steps are made

double advance_chunk(const Mesh& m, const Chunks& c, int64_t k, const State& now, const State& next, double* res) {
  const int64_t from = k * c.chunk, to = std::min(from + c.chunk, m.cells);
  const int64_t* edges = c.starts + 2 * k;
  std::fill(res, res + 4 * (to - from), 0.0);
  sum_fluxes<true>(m.x, c.nodes, c.cells, now.q, now.adt, res, edges[0], edges[1], from);
  sum_fluxes<false>(m.x, c.nodes, c.cells, now.q, now.adt, res, edges[1], edges[2], from);
  for (int64_t n = c.bstarts[k]; n < c.bstarts[k + 1]; ++n) {
    boundary_flux(m, now.q, now.adt, c.bedges[n], res + 4 * (m.bedge_cells[c.bedges[n]] - from));
  }
  double rms = 0.0;
  for (int64_t i = from; i < to; i += few) {
    const int64_t cells = std::min(few, to - i);
    rms += move_on(cells, now.adt + i, res + 4 * (i - from), now.qold + 4 * i, next.q + 4 * i);
    time_steps(cells, m.x, m.cell_nodes + 4 * i, next.q + 4 * i, next.adt + i);
  }
  return rms;
}

double fused_stage(const Mesh& m, const Chunks& chunks, const State& now, const State& next) {
  double rms = 0.0;
#pragma omp parallel reduction(+ : rms)
  {
    std::vector<double> res(4 * chunks.chunk);
#pragma omp for schedule(static)
    for (int64_t k = 0; k < chunks.chunks; ++k) rms += advance_chunk(m, chunks, k, now, next, res.data());
  }
  return rms;
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

// Greedy colors of contiguous blocks: two blocks that share a target differ. 64 colors a round, as bit masks on the
// targets; blocks that find none free wait for the next round.
void color_blocks(int64_t size, int64_t arity, const int32_t* map, int64_t targets, int64_t block, int64_t* color) {
  const int64_t blocks = (size + block - 1) / block;
  std::fill(color, color + blocks, -1);
  for (int64_t base = 0, left = blocks; left > 0; base += 64) {
    std::vector<uint64_t> used(targets, 0);
    for (int64_t b = 0; b < blocks; ++b) {
      if (color[b] >= 0) continue;
      const int64_t from = b * block * arity, to = std::min((b + 1) * block, size) * arity;
      uint64_t taken = 0;
      for (int64_t i = from; i < to; ++i) taken |= used[map[i]];
      if (!~taken) continue;
      const int free = __builtin_ctzll(~taken);
      for (int64_t i = from; i < to; ++i) used[map[i]] |= uint64_t(1) << free;
      color[b] = base + free;
      --left;
    }
  }
}

void run_block_color(const Mesh* m, const State* s, const Blocks* boundary, const Blocks* blocks, int64_t iterations,
                     double* rms) {
  iterate(*m, *s, *boundary, iterations, rms, [&] { res_calc_colored(*m, *s, *blocks); });
}

void run_gather(const Mesh* m, const State* s, const Blocks* boundary, const Incidence* incidence, int64_t iterations,
                double* rms) {
  iterate(*m, *s, *boundary, iterations, rms, [&] { res_calc_gather(*m, *s, *incidence); });
}

// Both stages start from the state at the beginning, which stays in its buffer until the second one replaces it.
void run_fused(const Mesh* m, const State* s, const Blocks*, const Chunks* chunks, int64_t iterations, double* rms) {
  const State start{s->q, s->q, s->adt, nullptr}, half{chunks->q_next, s->q, chunks->adt_next, nullptr};
  adt_calc(*m, *s);
  for (int64_t i = 0; i < iterations; ++i) {
    fused_stage(*m, *chunks, start, half);
    rms[i] = std::sqrt(fused_stage(*m, *chunks, half, start) / double(m->cells));
  }
}

}  // extern "C"
