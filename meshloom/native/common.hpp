// What the native sources share. It is pasted before each of them: a library is compiled from one text.
#include <algorithm>
#include <cstdint>
#include <new>
#include <numeric>
#include <vector>

// Every exported function comes as name_i32 and name_i64, for the two types of index arrays.
#define FOR_INDEX_TYPES(EXPORT) EXPORT(i32, int32_t) EXPORT(i64, int64_t)

namespace {

// Status of an exported function; exceptions must not cross into C.
constexpr int OK = 0, OUT_OF_MEMORY = 1;

template <class Work>
int guarded(Work work) {
  try {
    work();
    return OK;
  } catch (const std::bad_alloc&) {
    return OUT_OF_MEMORY;
  }
}

// Which things belong to which: row r holds the things items[i] / divide for i in [begin(r), end(r)).
// Rows of a map have a fixed arity (offsets is null); rows of an incidence lie between offsets, and its entries
// e*arity+slot are divided by the arity to give the element.
template <class I>
struct Relation {
  const int64_t* offsets;
  int64_t arity;
  const I* items;
  I divide;

  int64_t begin(int64_t row) const { return offsets ? offsets[row] : row * arity; }
  int64_t end(int64_t row) const { return offsets ? offsets[row + 1] : (row + 1) * arity; }
  int64_t size(int64_t row) const { return end(row) - begin(row); }
  I operator[](int64_t i) const { return divide == 1 ? items[i] : items[i] / divide; }
};

}  // namespace
