// CUDA's driver as a library of the host, for NVIDIA's bindings to call where there is no GPU: memory is the host's, a
// module is a library of the host's whose path is the image, a kernel its function run_<name>(blocks, threads, shared
// bytes, table of arguments). Streams that capture keep launches; a graph runs them, a WHILE node as long as its
// condition, which is the number at its handle, is not 0.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

struct Graph {
  std::vector<std::function<void()>> nodes;
};

struct Function {
  void (*run)(int64_t, int64_t, int64_t, void**);
  int parameters;
  int dynamic_shared = 49152, carveout = -1;
};

// as the documentation of the driver has them
struct ConditionalParams {
  uint64_t handle;
  int type;
  unsigned size;
  Graph** graphs;
  void* context;
};

struct NodeParams {
  int type, reserved[3];
  ConditionalParams conditional;
};

std::map<void*, Graph*> capturing;  // by stream
std::vector<std::unique_ptr<Function>> functions;
int modules = 0, graphs = 0;  // that somebody has not freed
int context = 1;
thread_local bool entered = false;  // does this thread have the context?

int ends(Graph* graph) {
  delete graph;
  return --graphs, 0;
}

}  // namespace

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_IMAGE = 200, NO_CONTEXT = 201, NOT_FOUND = 500, CONDITIONAL = 13, WHILE = 1 };

extern "C" {

int cuInit(unsigned) { return SUCCESS; }
int cuDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
int cuCtxGetCurrent(void** found) { return *found = &context, SUCCESS; }

int cuModuleLoadData(void** module, const void* image) {
  if (!entered) return NO_CONTEXT;
  *module = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  return *module ? ++modules, SUCCESS : INVALID_IMAGE;
}

int cuModuleUnload(void* module) { return dlclose(module), --modules, SUCCESS; }

int cuModuleGetFunction(void** function, void* module, const char* name) {
  void* run = dlsym(module, (std::string("run_") + name).c_str());
  void* parameters = dlsym(module, (std::string("parameters_of_") + name).c_str());
  if (!run || !parameters) return NOT_FOUND;
  functions.push_back(std::make_unique<Function>());
  functions.back()->run = reinterpret_cast<void (*)(int64_t, int64_t, int64_t, void**)>(run);
  functions.back()->parameters = *static_cast<int*>(parameters);
  return *function = functions.back().get(), SUCCESS;
}

int cuFuncSetAttribute(Function* function, int attribute, int value) {
  if (attribute == 8) return function->dynamic_shared = value, SUCCESS;
  if (attribute == 9) return function->carveout = value, SUCCESS;
  return INVALID_VALUE;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int threads, size_t shared) {
  if (!entered) return NO_CONTEXT;
  if (shared > size_t(function->dynamic_shared)) return INVALID_VALUE;
  return *blocks = function->carveout == 100 ? 1 : 2048 / threads, SUCCESS;
}

int cuLaunchKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
  if (!entered) return NO_CONTEXT;
  if (y * z * ty * tz != 1 || !x || !tx || extra || shared > unsigned(function->dynamic_shared)) return INVALID_VALUE;
  auto values = std::make_shared<std::vector<uint64_t>>(function->parameters);
  for (int k = 0; k < function->parameters; ++k) std::memcpy(&(*values)[k], arguments[k], 8);
  auto launch = [=] {
    std::vector<void*> table;
    for (auto& value : *values) table.push_back(&value);
    function->run(x, tx, shared, table.data());
  };
  auto found = capturing.find(stream);
  if (found == capturing.end()) return launch(), SUCCESS;
  return found->second->nodes.push_back(launch), SUCCESS;
}

int cuGraphCreate(Graph** graph, unsigned) { return *graph = new Graph, ++graphs, SUCCESS; }
int cuGraphDestroy(Graph* graph) { return ends(graph); }
int cuGraphExecDestroy(Graph* graph) { return ends(graph); }

int cuGraphConditionalHandleCreate(uint64_t* handle, Graph*, void* given, unsigned value, unsigned flags) {
  if (given != &context || value != 1 || flags != 1) return INVALID_VALUE;
  return *handle = reinterpret_cast<uint64_t>(new unsigned(0)), SUCCESS;  // whatever the number, as on a device
}

int cuGraphAddNode(void** node, Graph* graph, const void*, const void*, size_t count, NodeParams* given) {
  ConditionalParams& loop = given->conditional;
  if (count || given->type != CONDITIONAL || loop.type != WHILE || loop.size != 1 || loop.context != &context)
    return INVALID_VALUE;
  loop.graphs = new Graph*[1]{new Graph};
  Graph* body = loop.graphs[0];
  unsigned* condition = reinterpret_cast<unsigned*>(loop.handle);
  graph->nodes.push_back([=] {
    for (*condition = 1; *condition;)
      for (auto& one : body->nodes) one();
  });
  return *node = body, SUCCESS;
}

int cuStreamBeginCaptureToGraph(void* stream, Graph* graph, const void*, const void*, size_t count, int mode) {
  if (count || mode != 2) return INVALID_VALUE;
  return capturing[stream] = graph, SUCCESS;
}

int cuStreamEndCapture(void* stream, Graph** graph) {
  const auto found = capturing.find(stream);
  if (found == capturing.end()) return INVALID_VALUE;
  *graph = found->second;
  for (auto one = capturing.begin(); one != capturing.end();)  // with those that were drawn in
    one = one->second == *graph ? capturing.erase(one) : std::next(one);
  return SUCCESS;
}

int cuGraphInstantiateWithFlags(Graph** ready, Graph* graph, uint64_t) {
  return *ready = new Graph(*graph), ++graphs, SUCCESS;
}

int cuGraphLaunch(Graph* graph, void*) {
  for (auto& one : graph->nodes) one();
  return SUCCESS;
}

// what a test asks
void fake_enter() { entered = true; }
int fake_left() { return modules + graphs; }
void* fake_graph(void* stream) { return capturing.count(stream) ? capturing[stream] : nullptr; }
void fake_join(void* stream, void* graph) { capturing[stream] = static_cast<Graph*>(graph); }

int cuGetProcAddress_v2(const char* name, void** found, int, uint64_t, int* status) {
  static const std::map<std::string, const char*> newer = {{"cuGraphInstantiate", "cuGraphInstantiateWithFlags"},
                                                           {"cuGetProcAddress", "cuGetProcAddress_v2"}};
  static void* self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const auto known = newer.find(name);
  *found = dlsym(self, known == newer.end() ? name : known->second);
  if (status) *status = *found ? 0 : 1;
  return *found ? SUCCESS : NOT_FOUND;
}
}
