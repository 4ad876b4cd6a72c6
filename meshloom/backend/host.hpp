// What a CPU's compiler needs of the C library, spelt by its own built-in functions: the headers of C++ would take it
// longer to read than most loops take to compile, even when it has read them ahead.
#include <stddef.h>
#include <stdint.h>
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define ML_FUNCTION inline
#define ML_C(NAME) __builtin_##NAME
//@ mathematics.hpp
inline void* ml_room(size_t bytes) {  // memory, freed by ml_free
  void* const found = __builtin_malloc(bytes);
  if (!found) __builtin_abort();
  return found;
}
inline void ml_free(void* room) { __builtin_free(room); }
