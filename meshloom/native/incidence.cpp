// The slots that lead to each target, on which nearly every plan is built.
// Sizes and offsets are int64; indices are I = int32 or int64. Inputs were checked by the Python side.

namespace {

// Counting sort of the slots e*arity+s by target: two linear passes, ascending within each target.
template <class I, class E>
void incidence(const I* indices, int64_t n_slots, int64_t n_targets, int64_t* offsets, E* entries) {
  std::fill_n(offsets, n_targets + 1, 0);
  for (int64_t i = 0; i < n_slots; ++i) ++offsets[indices[i] + 1];
  std::partial_sum(offsets, offsets + n_targets + 1, offsets);
  std::vector<int64_t> next(offsets, offsets + n_targets);
  for (int64_t i = 0; i < n_slots; ++i) entries[next[indices[i]]++] = static_cast<E>(i);
}

// What is wrong with an incidence whose offsets run from 0 to the number of slots: nothing, an entry out of bounds, one
// under another target than it leads to, or entries that do not rise. Those that rise and stand in their places are
// all different, and as many as there are slots: each is there once.
constexpr int64_t RIGHT = 0, OUT_OF_BOUNDS = 1, ELSEWHERE = 2, NOT_RISING = 3;

template <class I, class E>
int64_t wrong_incidence(const I* indices, int64_t n_slots, int64_t n_targets, const int64_t* offsets, const E* entries) {
  int64_t worst = RIGHT;
  for (int64_t t = 0; t < n_targets; ++t)
    for (int64_t k = offsets[t]; k < offsets[t + 1]; ++k) {
      if (entries[k] < 0 || entries[k] >= n_slots) return OUT_OF_BOUNDS;
      if (indices[entries[k]] != t) worst = ELSEWHERE;
      else if (k > offsets[t] && entries[k] <= entries[k - 1] && worst == RIGHT) worst = NOT_RISING;
    }
  return worst;
}

}  // namespace

extern "C" {

#define INCIDENCE(suffix, I)                                                                                          \
  int incidence32_##suffix(const I* indices, int64_t n_slots, int64_t n_targets, int64_t* offsets, int32_t* entries) { \
    return guarded([&] { incidence(indices, n_slots, n_targets, offsets, entries); });                                \
  }                                                                                                                   \
  int incidence64_##suffix(const I* indices, int64_t n_slots, int64_t n_targets, int64_t* offsets, int64_t* entries) { \
    return guarded([&] { incidence(indices, n_slots, n_targets, offsets, entries); });                                \
  }
FOR_INDEX_TYPES(INCIDENCE)

#define WRONG_INCIDENCE(suffix, I)                                                                                \
  int wrong_incidence32_##suffix(const I* indices, int64_t n_slots, int64_t n_targets, const int64_t* offsets,     \
                                 const int32_t* entries, int64_t* verdict) {                                      \
    *verdict = wrong_incidence(indices, n_slots, n_targets, offsets, entries);                                    \
    return OK;                                                                                                    \
  }                                                                                                               \
  int wrong_incidence64_##suffix(const I* indices, int64_t n_slots, int64_t n_targets, const int64_t* offsets,     \
                                 const int64_t* entries, int64_t* verdict) {                                      \
    *verdict = wrong_incidence(indices, n_slots, n_targets, offsets, entries);                                    \
    return OK;                                                                                                    \
  }
FOR_INDEX_TYPES(WRONG_INCIDENCE)

}  // extern "C"
