// Ctrl-C at a chosen moment: behind so many events of a profile (calls and returns of Python's functions and of C's) a
// SIGINT is pending, as if it had come just then. Python raises KeyboardInterrupt where it looks for signals next.
struct _object;
typedef int (*Profiler)(_object *, void *, int, _object *);
extern "C" void PyEval_SetProfile(Profiler, _object *);
extern "C" void PyErr_SetInterrupt(void);

static long left = -1;

static int event(_object *, void *, int, _object *) {
  if (left >= 0 && left-- == 0) PyErr_SetInterrupt();
  return 0;
}

extern "C" __attribute__((visibility("default"))) void interrupt_behind(long events) {
  left = events;
  PyEval_SetProfile(event, nullptr);
}

extern "C" __attribute__((visibility("default"))) long stop() {  // events that were left, -1 where it came
  PyEval_SetProfile(nullptr, nullptr);
  const long found = left;
  left = -1;
  return found;
}
