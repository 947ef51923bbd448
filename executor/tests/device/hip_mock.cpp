// A stand-in for libamdhip64.so: memory is the host's, kernels are those of the CPU, every call can be made to
// fail, and what is not given back is counted.
#define K3_LEVEL mock
#include "cpu.cpp"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

struct Planned {
  int in;    // calls until it fails
  int code;
};

std::mutex mutex;
std::map<std::string, Planned> failures;
std::map<std::string, int> calls;
std::set<void*> live;
bool lost = false;

struct Recorded {
  int kernel;
  std::vector<unsigned long long> words;
  unsigned grid[3];
};

struct Graph {
  std::vector<Recorded> launches;
};

Graph* capturing = nullptr;

int enter(const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  calls[name]++;
  if (lost) return 719;
  auto planned = failures.find(name);
  if (planned != failures.end() && planned->second.in-- == 0) {
    const int code = planned->second.code;
    failures.erase(planned);
    if (code == 719) lost = true;
    return code;
  }
  return 0;
}

void* keep(void* handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  live.insert(handle);
  return handle;
}

// A driver gives back what a lost device owned; the mock counts it as given back when it is asked to.
int drop(const char* name, void* handle, int code) {
  const std::lock_guard<std::mutex> lock(mutex);
  (void)name;
  if (!live.erase(handle)) return 400;
  return code;
}

const char* symbols[] = {
#define K3_NAME(name, Args) #name,
    K3_TABLE(K3_NAME)};
const int sizes[] = {
#define K3_SIZE(name, Args) (int)sizeof(Args),
    K3_TABLE(K3_SIZE)};

void run(const Recorded& launch) {
  const unsigned long long programs = 1ull * launch.grid[0] * launch.grid[1] * launch.grid[2];
  k3_cpu_run_mock(launch.kernel, launch.words.data(), launch.grid[0], launch.grid[1], 0, programs);
}

}  // namespace

#define ENTER(name) \
  if (const int failed = enter(#name)) return failed

extern "C" {

void mock_fail(const char* name, int in, int code) {
  const std::lock_guard<std::mutex> lock(mutex);
  failures[name] = {in, code};
}
int mock_live() { return (int)live.size(); }
int mock_calls(const char* name) { return calls[name]; }

int hipInit(unsigned) { ENTER(hipInit); return 0; }
int hipGetDeviceCount(int* count) { ENTER(hipGetDeviceCount); *count = 1; return 0; }
int hipDeviceGet(int* device, int ordinal) { ENTER(hipDeviceGet); *device = ordinal; return ordinal == 0 ? 0 : 101; }
int hipDeviceGetName(char* name, int size, int) {
  ENTER(hipDeviceGetName);
  strncpy(name, "AMD Instinct MI355X (mock)", (size_t)size);
  return 0;
}
int hipDeviceTotalMem(size_t* bytes, int) { ENTER(hipDeviceTotalMem); *bytes = 1 << 30; return 0; }
int hipDeviceGetAttribute(int* value, int attribute, int) {
  ENTER(hipDeviceGetAttribute);
  switch (attribute) {
    case 23: *value = 9; return 0;             // compute capability, major
    case 61: *value = 5; return 0;             // minor
    case 63: *value = 2; return 0;             // multiprocessors
    case 56: *value = 1024; return 0;          // threads a block
    case 29: case 30: case 31: *value = 2147483647; return 0;
    case 60: *value = 2600000; return 0;       // memory clock, kHz
    case 59: *value = 8192; return 0;          // memory bus, bits
    case 19: *value = 4 << 20; return 0;       // L2
    default: return 1;
  }
}
int hipDevicePrimaryCtxRetain(void** context, int) { ENTER(hipDevicePrimaryCtxRetain); *context = keep(malloc(1)); return 0; }
int hipDevicePrimaryCtxRelease(int) {
  const int code = enter("hipDevicePrimaryCtxRelease");
  const std::lock_guard<std::mutex> lock(mutex);
  if (live.size() == 1) {
    free(*live.begin());
    live.clear();
  }
  return code;
}
int hipCtxSetCurrent(void*) { ENTER(hipCtxSetCurrent); return 0; }
int hipMemGetInfo(size_t* free_bytes, size_t* total) {
  ENTER(hipMemGetInfo);
  *free_bytes = 12345;
  *total = 1 << 30;
  return 0;
}
int hipMalloc(void** address, size_t bytes) {
  ENTER(hipMalloc);
  if (bytes > (1u << 30)) return 2;
  *address = keep(aligned_alloc(64, (bytes + 63) / 64 * 64));
  return 0;
}
int hipFree(void* address) {
  const int code = drop("hipFree", address, enter("hipFree"));
  free(address);
  return code;
}
int hipHostMalloc(void** address, size_t bytes, unsigned) { ENTER(hipHostMalloc); *address = keep(malloc(bytes)); return 0; }
int hipHostFree(void* address) {
  const int code = drop("hipHostFree", address, enter("hipHostFree"));
  free(address);
  return code;
}
int hipMemcpyHtoDAsync(void* to, const void* from, size_t bytes, void*) { ENTER(hipMemcpyHtoDAsync); memcpy(to, from, bytes); return 0; }
int hipMemcpyDtoHAsync(void* to, const void* from, size_t bytes, void*) { ENTER(hipMemcpyDtoHAsync); memcpy(to, from, bytes); return 0; }
int hipMemsetD8Async(void* to, unsigned char value, size_t bytes, void*) { ENTER(hipMemsetD8Async); memset(to, value, bytes); return 0; }

#define CREATE(name) \
  ENTER(name);       \
  *made = keep(malloc(1)); \
  return 0
#define DESTROY(name)                                \
  const int code = drop(#name, handle, enter(#name)); \
  free(handle);                                      \
  return code

int hipStreamCreateWithFlags(void** made, unsigned) { CREATE(hipStreamCreateWithFlags); }
int hipStreamDestroy(void* handle) { DESTROY(hipStreamDestroy); }
int hipStreamSynchronize(void*) { ENTER(hipStreamSynchronize); return 0; }
int hipEventCreateWithFlags(void** made, unsigned) { CREATE(hipEventCreateWithFlags); }
int hipEventDestroy(void* handle) { DESTROY(hipEventDestroy); }
int hipEventRecord(void*, void*) { ENTER(hipEventRecord); return 0; }
int hipEventSynchronize(void*) { ENTER(hipEventSynchronize); return 0; }
int hipEventElapsedTime(float* milliseconds, void*, void*) { ENTER(hipEventElapsedTime); *milliseconds = 0.5f; return 0; }
int hipModuleLoadData(void** made, const void*) { CREATE(hipModuleLoadData); }
int hipModuleUnload(void* handle) { DESTROY(hipModuleUnload); }
int hipModuleGetFunction(void** function, void*, const char* name) {
  ENTER(hipModuleGetFunction);
  for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); ++i)
    if (!strcmp(symbols[i], name)) {
      *function = (void*)(i + 1);
      return 0;
    }
  return 500;
}
int hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned, unsigned, unsigned, unsigned,
                          void*, void** parameters, void**) {
  ENTER(hipModuleLaunchKernel);
  Recorded launch = {(int)((size_t)function - 1), {}, {gx, gy, gz}};
  launch.words.resize(sizes[launch.kernel] / 8);
  memcpy(launch.words.data(), parameters[0], launch.words.size() * 8);
  if (capturing) capturing->launches.push_back(launch);
  else run(launch);
  return 0;
}
int hipStreamBeginCapture(void*, int) { ENTER(hipStreamBeginCapture); capturing = new Graph; keep(capturing); return 0; }
int hipStreamEndCapture(void*, void** graph) {
  const int code = enter("hipStreamEndCapture");
  *graph = capturing;
  capturing = nullptr;
  return code;
}
int hipGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  ENTER(hipGraphInstantiateWithFlags);
  *executable = keep(new Graph(*(Graph*)graph));
  return 0;
}
#ifndef MOCK_WITHOUT_GRAPHS
int hipGraphLaunch(void* executable, void*) {
  ENTER(hipGraphLaunch);
  for (const Recorded& launch : ((Graph*)executable)->launches) run(launch);
  return 0;
}
#endif
int hipGraphExecDestroy(void* handle) {
  const int code = drop("hipGraphExecDestroy", handle, enter("hipGraphExecDestroy"));
  delete (Graph*)handle;
  return code;
}
int hipGraphDestroy(void* handle) {
  const int code = drop("hipGraphDestroy", handle, enter("hipGraphDestroy"));
  delete (Graph*)handle;
  return code;
}
const char* hipGetErrorName(int code) {
  switch (code) {
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 9: return "hipErrorInvalidConfiguration";
    case 719: return "hipErrorLaunchFailure";
    default: return "hipErrorUnknown";
  }
}
}
