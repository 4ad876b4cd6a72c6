// The field of straight, evenly charged lines, each with its mirror image at -y:
//   E(p) = q / L * (across * (s/|s| - e/|e|) / across^2 + along * (1/|e| - 1/|s|))
// where s and e are the vectors from start and end to p, here their parts along the line in the first term, and lengths
// squared have a blur added. Points go through in packs, so that a compiler finds lanes without reordering any sum.

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

struct Line {
  double x, y, z, ux, uy, uz, length, blur, density;

  explicit Line(const double* row)
      : x(row[0]), y(row[1]), z(row[2]), ux(row[3] - x), uy(row[4] - y), uz(row[5] - z), blur(row[6]) {
    const double inverse = inverse_root(ux * ux + uy * uy + uz * uz);
    length = 1 / inverse, density = row[7] * inverse;
    ux *= inverse, uy *= inverse, uz *= inverse;
  }
};

struct Pack {
  double x[PACK], y[PACK], z[PACK], ex[PACK], ey[PACK], ez[PACK];

  // side -1: the image's push on a point is the mirrored push of the line on the mirrored point.
  void add(const Line& line, double side) {
    for (int64_t l = 0; l < PACK; ++l) {
      const double dx = x[l] - line.x, dy = side * y[l] - line.y, dz = z[l] - line.z;
      const double start = dx * line.ux + dy * line.uy + dz * line.uz, end = start - line.length;
      const double ax = dx - start * line.ux, ay = dy - start * line.uy, az = dz - start * line.uz;
      const double across = ax * ax + ay * ay + az * az + line.blur;
      const double from_start = inverse_root(across + start * start), from_end = inverse_root(across + end * end);
      const double out = line.density * (start * from_start - end * from_end) / across;
      const double along = line.density * (from_end - from_start);
      ex[l] += out * ax + along * line.ux;
      ey[l] += side * (out * ay + along * line.uy);
      ez[l] += out * az + along * line.uz;
    }
  }
};

// points and field are (n, 3), charges (m, 8): start, end, blur (a length squared), charge.
void push(const double* points, int64_t n, const double* charges, int64_t m, double* field) {
  for (int64_t begin = 0; begin < n; begin += PACK) {
    Pack pack = {};
    const int64_t here = std::min(PACK, n - begin);
    for (int64_t l = 0; l < PACK; ++l) {  // the last pack repeats its last point
      const double* p = points + 3 * (begin + std::min(l, here - 1));
      pack.x[l] = p[0], pack.y[l] = p[1], pack.z[l] = p[2];
    }
    for (int64_t c = 0; c < m; ++c) {
      const Line line(charges + 8 * c);
      pack.add(line, 1.0);
      pack.add(line, -1.0);
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
