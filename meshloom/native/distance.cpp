// Exact distances from points to pieces of a surface: line segments in the plane, triangles in space.
//
// The pieces are sorted into a tree of boxes by halving along the longest extent of their middles. A point goes down the
// tree, the nearer box first, and leaves out boxes that are farther away than the nearest piece found so far. It starts
// with the piece that was nearest to the point before it, which is close by where points come in a good order; runs of
// RUN points are independent of each other, so that the answer does not depend on the number of threads.
#include <cmath>
#include <limits>

namespace {

constexpr int64_t LEAF = 4, RUN = 1024;

template <int D>
struct Vector {
  double at[D];
  double operator[](int d) const { return at[d]; }
  Vector operator-(const Vector& other) const {
    Vector found;
    for (int d = 0; d < D; ++d) found.at[d] = at[d] - other.at[d];
    return found;
  }
};

template <int D>
double dot(const Vector<D>& a, const Vector<D>& b) {
  double total = 0;
  for (int d = 0; d < D; ++d) total += a[d] * b[d];
  return total;
}

Vector<3> cross(const Vector<3>& a, const Vector<3>& b) {
  return {{a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}};
}

// Square of the distance from p to the segment from a to b, which may be a point.
template <int D>
double to_segment(const Vector<D>& p, const Vector<D>& a, const Vector<D>& b) {
  const Vector<D> along = b - a, way = p - a;
  const double length = dot(along, along);
  const double share = length > 0 ? std::min(1.0, std::max(0.0, dot(way, along) / length)) : 0.0;
  double total = 0;
  for (int d = 0; d < D; ++d) {
    const double part = way[d] - share * along[d];
    total += part * part;
  }
  return total;
}

double to_piece(const Vector<2>& p, const Vector<2>* corner) { return to_segment(p, corner[0], corner[1]); }

// A triangle: along its normal where p is above its inside, else to the nearest edge; a flat one is its edges.
double to_piece(const Vector<3>& p, const Vector<3>* corner) {
  const Vector<3> normal = cross(corner[1] - corner[0], corner[2] - corner[0]);
  const double size = dot(normal, normal);
  bool above = size > 0;
  for (int k = 0; k < 3 && above; ++k)
    above = dot(cross(normal, corner[(k + 1) % 3] - corner[k]), p - corner[k]) >= 0;
  if (above) {
    const double height = dot(p - corner[0], normal);
    return height / size * height;
  }
  double least = to_segment(p, corner[2], corner[0]);
  for (int k = 0; k < 2; ++k) least = std::min(least, to_segment(p, corner[k], corner[k + 1]));
  return least;
}

template <int D>
struct Tree {
  struct Box {
    Vector<D> low, high;
    int64_t first, last;  // its pieces, in the order of the tree
    int64_t children;     // the number of the first of two boxes that follow each other; 0 for a leaf
  };
  std::vector<Vector<D>> corners;  // D of each piece, in the order of the tree
  std::vector<Box> boxes;

  Tree(const double* given, int64_t n) : corners(n * D) {
    const Vector<D>* piece = reinterpret_cast<const Vector<D>*>(given);
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), int64_t(0));
    std::vector<Vector<D>> middle(n);
    for (int64_t k = 0; k < n; ++k)
      for (int d = 0; d < D; ++d) {
        middle[k].at[d] = 0;
        for (int c = 0; c < D; ++c) middle[k].at[d] += piece[k * D + c][d] / D;
      }
    boxes.reserve(2 * (n / LEAF + 1));
    boxes.push_back({{}, {}, 0, n, 0});
    for (size_t k = 0; k < boxes.size(); ++k) split(static_cast<int64_t>(k), order, middle);
    for (int64_t k = 0; k < n; ++k)
      for (int c = 0; c < D; ++c) corners[k * D + c] = piece[order[k] * D + c];
    for (size_t k = boxes.size(); k-- > 0;) enclose(boxes[k]);
  }

  void split(int64_t number, std::vector<int64_t>& order, const std::vector<Vector<D>>& middle) {
    const int64_t first = boxes[number].first, last = boxes[number].last;
    if (last - first <= LEAF) return;
    int axis = 0;
    double widest = -1;
    for (int d = 0; d < D; ++d) {
      double low = middle[order[first]][d], high = low;
      for (int64_t k = first; k < last; ++k) {
        low = std::min(low, middle[order[k]][d]);
        high = std::max(high, middle[order[k]][d]);
      }
      if (high - low > widest) widest = high - low, axis = d;
    }
    const int64_t half = first + (last - first) / 2;
    std::nth_element(order.begin() + first, order.begin() + half, order.begin() + last,
                     [&](int64_t a, int64_t b) { return middle[a][axis] < middle[b][axis]; });
    boxes[number].children = static_cast<int64_t>(boxes.size());
    boxes.push_back({{}, {}, first, half, 0});
    boxes.push_back({{}, {}, half, last, 0});
  }

  void enclose(Box& box) {
    for (int d = 0; d < D; ++d) {
      double low = std::numeric_limits<double>::infinity(), high = -low;
      const auto include = [&](double least, double most) { low = std::min(low, least), high = std::max(high, most); };
      if (box.children)
        for (int64_t c = box.children; c < box.children + 2; ++c) include(boxes[c].low[d], boxes[c].high[d]);
      else
        for (int64_t k = box.first * D; k < box.last * D; ++k) include(corners[k][d], corners[k][d]);
      box.low.at[d] = low, box.high.at[d] = high;
    }
  }

  static double to_box(const Vector<D>& p, const Box& box) {
    double total = 0;
    for (int d = 0; d < D; ++d) {
      const double out = std::max(0.0, std::max(box.low[d] - p[d], p[d] - box.high[d]));
      total += out * out;
    }
    return total;
  }

  // Square of the distance from p to the nearest piece; `nearest` is where to begin, and becomes that piece.
  double to_all(const Vector<D>& p, int64_t& nearest) const {
    double least = to_piece(p, &corners[nearest * D]);
    struct Waiting {
      int64_t box;
      double away;
    } stack[128];  // two for each level, of which there are at most 63
    int many = 0;
    stack[many++] = {0, to_box(p, boxes[0])};
    while (many) {
      const Waiting next = stack[--many];
      if (next.away >= least) continue;
      const Box& box = boxes[next.box];
      if (box.children) {
        Waiting one{box.children, to_box(p, boxes[box.children])};
        Waiting other{box.children + 1, to_box(p, boxes[box.children + 1])};
        if (one.away < other.away) std::swap(one, other);
        stack[many++] = one;
        stack[many++] = other;
        continue;
      }
      for (int64_t k = box.first; k < box.last; ++k) {
        const double away = to_piece(p, &corners[k * D]);
        if (away < least) least = away, nearest = k;
      }
    }
    return least;
  }
};

template <int D>
void distances(const double* points, int64_t n, const double* pieces, int64_t many, double* found, int64_t threads) {
  const Tree<D> tree(pieces, many);
  const int64_t runs = (n + RUN - 1) / RUN;
#pragma omp parallel for schedule(dynamic) num_threads((int)threads)
  for (int64_t run = 0; run < runs; ++run) {
    int64_t nearest = 0;
    for (int64_t k = run * RUN; k < std::min(n, (run + 1) * RUN); ++k) {
      Vector<D> p;
      for (int d = 0; d < D; ++d) p.at[d] = points[k * D + d];
      found[k] = std::sqrt(tree.to_all(p, nearest));
    }
  }
}

}  // namespace

#define EXPORT(D)                                                                                                     \
  extern "C" int distances_##D(const double* points, int64_t n, const double* pieces, int64_t many, double* found,    \
                               int64_t threads) {                                                                     \
    return guarded([&] { distances<D>(points, n, pieces, many, found, threads); });                                   \
  }
EXPORT(2)
EXPORT(3)
