// The direction in which point charges push: E(p) = sum of q (p - c) / (|p - c|^2 + blur)^(3/2), each charge with its
// mirror image at -y. Points go through in packs, so that a compiler finds lanes without reordering any sum.

namespace {

constexpr int64_t PACK = 16;

// 1 / sqrt(a) for normal positive a: half the exponent by an integer shift, then Newton's steps, whose error squares each
// time (3e-2, 2e-3, 5e-6, 3e-11). The C library's sqrt may set errno, which keeps loops from being vectorised.
inline double inverse_root(double a) {
  int64_t bits;
  __builtin_memcpy(&bits, &a, sizeof bits);
  bits = 0x5FE6EB50C7B537A9 - (bits >> 1);
  double y;
  __builtin_memcpy(&y, &bits, sizeof y);
  const double half = 0.5 * a;
  y *= 1.5 - half * y * y;
  y *= 1.5 - half * y * y;
  y *= 1.5 - half * y * y;
  return y;
}

struct Pack {
  double x[PACK], y[PACK], z[PACK], ex[PACK], ey[PACK], ez[PACK];

  void add(double cx, double cy, double cz, double blur, double q) {
    for (int64_t l = 0; l < PACK; ++l) {
      const double dx = x[l] - cx, dy = y[l] - cy, dz = z[l] - cz;
      const double root = inverse_root(dx * dx + dy * dy + dz * dz + blur);
      const double push = q * root * root * root;
      ex[l] += push * dx;
      ey[l] += push * dy;
      ez[l] += push * dz;
    }
  }
};

// points and field are (n, 3), charges (m, 5): place, blur (a length squared), charge.
void push(const double* points, int64_t n, const double* charges, int64_t m, double* field) {
  for (int64_t begin = 0; begin < n; begin += PACK) {
    Pack pack = {};
    const int64_t here = std::min(PACK, n - begin);
    for (int64_t l = 0; l < PACK; ++l) {  // the last pack repeats its last point
      const double* p = points + 3 * (begin + std::min(l, here - 1));
      pack.x[l] = p[0], pack.y[l] = p[1], pack.z[l] = p[2];
    }
    for (const double* c = charges; c < charges + 5 * m; c += 5) {
      pack.add(c[0], c[1], c[2], c[3], c[4]);
      pack.add(c[0], -c[1], c[2], c[3], c[4]);
    }
    for (int64_t l = 0; l < here; ++l) {
      double* e = field + 3 * (begin + l);
      e[0] = pack.ex[l], e[1] = pack.ey[l], e[2] = pack.ez[l];
    }
  }
}

}  // namespace

extern "C" int mirrored_field(const double* points, int64_t n, const double* charges, int64_t m, double* field) {
  return guarded([&] { push(points, n, charges, m, field); });
}
