// Graphs and their numberings by topology: adjacency, Cuthill-McKee, Gibbs-Poole-Stockmeyer.
// A graph is symmetric, without loops, in rows: neighbors[offsets[v]..offsets[v+1]) are the neighbors of v.

namespace {

// Whether the thing at `i` of a row came before in it. In an incidence, which ascends, equals are side by side.
template <class I>
bool repeated(const Relation<I>& relation, int64_t begin, int64_t i) {
  if (relation.offsets) return i > begin && relation[i - 1] == relation[i];
  return std::find(relation.items + begin, relation.items + i, relation.items[i]) != relation.items + i;
}

// First place of `v` in the ascending row [begin, end) of an incidence.
template <class I>
int64_t place_of(const Relation<I>& incidence, I v, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (incidence[middle] < v) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

// Vertices are joined when they share a link. `to_links` and `to_vertices` say which links a vertex has and which
// vertices a link; within a link of more than `window` vertices each is joined only to those at most `window` places
// away, so that a link of all vertices does not make a complete graph.
//
// Fills offsets and, where not null, neighbors and weights (the number of links that join the two): called once to
// count and again to fill, or once with room enough. What a vertex has already is found by a look through its
// neighbors where they are few, else by marks: no sorting.
template <class I>
void adjacency(Relation<I> to_links, Relation<I> to_vertices, int64_t n, int64_t window, int64_t* offsets,
               I* neighbors, I* weights) {
  constexpr int64_t FEW = 8;
  std::vector<I> seen_by(n, -1);
  std::vector<int64_t> place(n);
  int64_t next = offsets[0] = 0;
  for (int64_t v = 0; v < n; ++v) {
    const int64_t links = to_links.begin(v), first = next;
    const bool few = neighbors && to_links.size(v) <= FEW && !to_vertices.offsets && to_vertices.arity <= 2;
    const auto place_among_neighbors = [&](I u) {  // `next` where it is new
      if (few) return int64_t(std::find(neighbors + first, neighbors + next, u) - neighbors);
      if (seen_by[u] == v) return place[u];
      seen_by[u] = static_cast<I>(v);
      return place[u] = next;
    };
    for (int64_t i = links; i < to_links.end(v); ++i) {
      const I link = to_links[i];
      const int64_t row = to_vertices.begin(link);
      int64_t begin = row, end = to_vertices.end(link);
      const bool windowed = end - begin > window, once = windowed || weights;
      if (once && repeated(to_links, links, i)) continue;
      if (windowed) {
        const int64_t self = place_of(to_vertices, static_cast<I>(v), begin, end);
        begin = std::max(begin, self - window);
        end = std::min(end, self + window + 1);
      }
      for (int64_t j = begin; j < end; ++j) {
        const I u = to_vertices[j];
        if (u == v || (once && repeated(to_vertices, row, j))) continue;
        const int64_t known = place_among_neighbors(u);
        if (known < next) {
          if (weights) ++weights[known];
        } else {
          if (neighbors) neighbors[next] = u;
          if (weights) weights[next] = 1;
          ++next;
        }
      }
    }
    offsets[v + 1] = next;
  }
}

template <class I>
struct Graph {
  int64_t n;
  const int64_t* offsets;
  const I* neighbors;

  int64_t degree(int64_t v) const { return offsets[v + 1] - offsets[v]; }
  bool smaller(I a, I b) const { return degree(a) != degree(b) ? degree(a) < degree(b) : a < b; }

  template <class Visit>
  void each_neighbor(int64_t v, Visit visit) const {
    for (int64_t i = offsets[v]; i < offsets[v + 1]; ++i) visit(neighbors[i]);
  }
};

// The component of `root`, level by level: vertices[starts[l]..starts[l+1]) are l steps from it.
template <class I>
struct Levels {
  std::vector<I> vertices;
  std::vector<int64_t> starts;
  std::vector<int32_t> of;  // per vertex of the graph; -1 elsewhere

  explicit Levels(int64_t n) : of(n, -1) {}

  int64_t depth() const { return int64_t(starts.size()) - 1; }
  int64_t width() const {
    int64_t most = 0;
    for (int64_t l = 0; l < depth(); ++l) most = std::max(most, starts[l + 1] - starts[l]);
    return most;
  }

  void grow(const Graph<I>& graph, I root) {
    for (I v : vertices) of[v] = -1;
    vertices.assign(1, root);
    starts.assign({0, 1});
    of[root] = 0;
    for (int32_t level = 0; starts[level] < starts[level + 1]; ++level) {
      for (int64_t i = starts[level]; i < starts[level + 1]; ++i)
        graph.each_neighbor(vertices[i], [&](I u) {
          if (of[u] >= 0) return;
          of[u] = level + 1;
          vertices.push_back(u);
        });
      starts.push_back(int64_t(vertices.size()));
    }
    starts.pop_back();  // the empty level at the end
  }

  // The vertices farthest from the root, those of smallest degree first, at most `count` of them.
  std::vector<I> ends(const Graph<I>& graph, int64_t count) const {
    std::vector<I> last(vertices.begin() + starts[depth() - 1], vertices.end());
    count = std::min<int64_t>(count, int64_t(last.size()));
    std::partial_sort(last.begin(), last.begin() + count, last.end(), [&](I a, I b) { return graph.smaller(a, b); });
    last.resize(count);
    return last;
  }
};

// Cuthill-McKee from an end of each component, reversed within it; components in the order of their first vertex.
// The end is found as by George and Liu: step to the far side while that makes the component deeper.
template <class I>
void cuthill_mckee(const Graph<I>& graph, int64_t* order) {
  Levels<I> here(graph.n), there(graph.n);
  std::vector<uint8_t> numbered(graph.n, 0);
  std::vector<I> next;
  int64_t done = 0;
  for (int64_t v = 0; v < graph.n; ++v) {
    if (numbered[v]) continue;
    const int64_t first = done;
    I root = static_cast<I>(v);
    here.grow(graph, root);
    for (int attempt = 0; attempt < 4 && here.depth() > 1; ++attempt) {
      const I end = here.ends(graph, 1)[0];
      there.grow(graph, end);
      if (there.depth() <= here.depth() && attempt > 0) break;
      std::swap(here, there);
      root = end;
    }
    numbered[root] = 1;
    order[done++] = root;
    for (int64_t i = first; i < done; ++i) {
      next.clear();
      graph.each_neighbor(order[i], [&](I u) {
        if (!numbered[u]) next.push_back(u);
      });
      std::sort(next.begin(), next.end(), [&](I a, I b) { return graph.smaller(a, b); });
      for (I u : next) numbered[u] = 1, order[done++] = u;
    }
    std::reverse(order + first, order + done);
  }
}

// Gibbs, Poole and Stockmeyer (1976), component by component:
// 1. two ends u, v of a pseudo-diameter, with the levels seen from each;
// 2. one level for each vertex: where both views agree, that; the rest, connected piece by connected piece, largest
//    first, as seen from u or from v, whichever makes the widest level it enters less wide;
// 3. numbering level by level: neighbors of the lowest numbered first, by degree; reversed where that shrinks the profile.
template <class I>
class GibbsPooleStockmeyer {
 public:
  GibbsPooleStockmeyer(const Graph<I>& of, int64_t* result)
      : graph(of), order(result), from_u(graph.n), from_v(graph.n), trial(graph.n), level(graph.n, UNSEEN),
        position(graph.n, -1) {}

  void run() {
    for (int64_t v = 0; v < graph.n; ++v)
      if (position[v] < 0) number_component(static_cast<I>(v));
  }

 private:
  static constexpr int32_t UNSEEN = -1, OPEN = -2;  // OPEN: the two views disagree
  static constexpr int CANDIDATES = 3;              // ends tried for v: the smallest degrees of the last level

  Graph<I> graph;
  int64_t* order;
  Levels<I> from_u, from_v, trial;
  std::vector<int32_t> level;
  std::vector<int64_t> position;  // -1: not numbered
  std::vector<int64_t> width;     // per level of the component
  int64_t done = 0;

  void number_component(I any) {
    if (graph.degree(any) == 0) {
      position[any] = done;
      order[done++] = any;
      return;
    }
    find_ends(any);
    combine_levels();
    const int64_t first = done;
    number_levels();
    if (profile(first, true) < profile(first, false)) {
      std::reverse(order + first, order + done);
      for (int64_t i = first; i < done; ++i) position[order[i]] = i;
    }
  }

  void find_ends(I any) {
    from_u.grow(graph, any);
    from_u.grow(graph, *std::min_element(from_u.vertices.begin(), from_u.vertices.end(),
                                         [&](I a, I b) { return graph.smaller(a, b); }));
    for (bool deeper = true; deeper;) {
      deeper = false;
      int64_t narrowest = INT64_MAX;
      for (I candidate : from_u.ends(graph, CANDIDATES)) {
        trial.grow(graph, candidate);
        if (trial.depth() > from_u.depth()) {
          std::swap(from_u, trial);
          deeper = true;
          break;
        }
        if (trial.width() < narrowest) {
          narrowest = trial.width();
          std::swap(from_v, trial);
        }
      }
    }
  }

  int32_t seen_from_u(I w) const { return from_u.of[w]; }
  int32_t seen_from_v(I w) const { return int32_t(from_u.depth()) - 1 - from_v.of[w]; }

  void combine_levels() {
    width.assign(from_u.depth(), 0);
    std::vector<I> open;
    for (I w : from_u.vertices) {
      const bool agree = seen_from_u(w) == seen_from_v(w);
      level[w] = agree ? seen_from_u(w) : OPEN;
      if (agree) ++width[level[w]];
      else open.push_back(w);
    }
    const bool u_is_narrower = from_u.width() <= from_v.width();
    for (const std::vector<I>& piece : pieces(open)) settle(piece, u_is_narrower);
  }

  std::vector<std::vector<I>> pieces(const std::vector<I>& open) {
    std::vector<std::vector<I>> found;
    for (I start : open) {
      if (level[start] != OPEN) continue;
      std::vector<I> piece{start};
      level[start] = UNSEEN;
      for (size_t i = 0; i < piece.size(); ++i)
        graph.each_neighbor(piece[i], [&](I u) {
          if (level[u] != OPEN) return;
          level[u] = UNSEEN;
          piece.push_back(u);
        });
      found.push_back(std::move(piece));
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return found;
  }

  void settle(const std::vector<I>& piece, bool u_is_narrower) {
    int64_t widest[2];
    for (int view = 0; view < 2; ++view) {
      widest[view] = 0;
      for (I w : piece) widest[view] = std::max(widest[view], ++width[view ? seen_from_v(w) : seen_from_u(w)]);
      for (I w : piece) --width[view ? seen_from_v(w) : seen_from_u(w)];
    }
    const bool use_u = widest[0] != widest[1] ? widest[0] < widest[1] : u_is_narrower;
    for (I w : piece) ++width[level[w] = use_u ? seen_from_u(w) : seen_from_v(w)];
  }

  void number_levels() {
    const int64_t depth = from_u.depth();
    I start = from_u.vertices[0];
    const I other = from_v.vertices[0];
    if (graph.degree(other) < graph.degree(start)) {
      start = other;
      for (I w : from_u.vertices) level[w] = int32_t(depth) - 1 - level[w];
      std::reverse(width.begin(), width.end());
    }
    std::vector<int64_t> starts(depth + 1, 0);
    std::partial_sum(width.begin(), width.end(), starts.begin() + 1);
    std::vector<I> members(from_u.vertices.size());
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    for (I w : from_u.vertices) members[next[level[w]]++] = w;

    const int64_t first = done;
    number(start);
    for (int32_t l = 0; l < depth; ++l) {
      if (l > 0)
        for (int64_t i = first + starts[l - 1]; i < first + starts[l]; ++i) number_neighbors(order[i], l);
      bool sorted = false;
      int64_t untried = starts[l];
      for (int64_t i = first + starts[l]; i < first + starts[l + 1]; ++i) {
        if (i == done) {  // nothing left that is joined to what is numbered: go on from the smallest degree
          if (!sorted)
            std::sort(members.begin() + starts[l], members.begin() + starts[l + 1],
                      [&](I a, I b) { return graph.smaller(a, b); });
          sorted = true;
          while (position[members[untried]] >= 0) ++untried;
          number(members[untried]);
        }
        number_neighbors(order[i], l);
      }
    }
  }

  void number(I v) {
    position[v] = done;
    order[done++] = v;
  }

  void number_neighbors(int64_t v, int32_t of_level) {
    const int64_t first = done;
    graph.each_neighbor(v, [&](I u) {
      if (position[u] < 0 && level[u] == of_level) number(u);
    });
    if (done - first < 2) return;
    std::sort(order + first, order + done,
              [&](int64_t a, int64_t b) { return graph.smaller(static_cast<I>(a), static_cast<I>(b)); });
    for (int64_t i = first; i < done; ++i) position[order[i]] = i;
  }

  // Sum over the component's rows of the distance from the first entry to the diagonal.
  int64_t profile(int64_t first, bool reversed) const {
    int64_t sum = 0;
    for (int64_t i = first; i < done; ++i) {
      int64_t farthest = 0;
      graph.each_neighbor(order[i], [&](I u) {
        farthest = std::max(farthest, reversed ? position[u] - i : i - position[u]);
      });
      sum += farthest;
    }
    return sum;
  }
};

}  // namespace

extern "C" {

// The graph of a map's targets, joined by its rows (`of_rows` 0), or of its rows, joined by their targets (1).
#define ADJACENCY(suffix, I)                                                                                          \
  int adjacency_##suffix(const I* indices, int64_t n_rows, int64_t arity, int64_t n_targets,                          \
                         const int64_t* incidence_offsets, const I* entries, int64_t of_rows, int64_t window,         \
                         int64_t* offsets, I* neighbors, I* weights) {                                                \
    return guarded([&] {                                                                                              \
      const Relation<I> rows{nullptr, arity, indices, 1};                                                             \
      const Relation<I> incident{incidence_offsets, 0, entries, static_cast<I>(arity)};                               \
      if (of_rows) adjacency(rows, incident, n_rows, window, offsets, neighbors, weights);                            \
      else adjacency(incident, rows, n_targets, window, offsets, neighbors, weights);                                 \
    });                                                                                                               \
  }
FOR_INDEX_TYPES(ADJACENCY)

#define NUMBERINGS(suffix, I)                                                                                         \
  int cuthill_mckee_##suffix(int64_t n, const int64_t* offsets, const I* neighbors, int64_t* order) {                 \
    return guarded([&] { cuthill_mckee(Graph<I>{n, offsets, neighbors}, order); });                                   \
  }                                                                                                                   \
  int gibbs_poole_stockmeyer_##suffix(int64_t n, const int64_t* offsets, const I* neighbors, int64_t* order) {        \
    return guarded([&] { GibbsPooleStockmeyer<I>(Graph<I>{n, offsets, neighbors}, order).run(); });                   \
  }
FOR_INDEX_TYPES(NUMBERINGS)

}  // extern "C"
