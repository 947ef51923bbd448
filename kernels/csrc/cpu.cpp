// The kernels as plain C++: runs a range of a launch's programs on the calling thread.
//
// Compiled once for each level of the x86-64 instruction set, with K3_LEVEL naming the symbol.
#define K3_CPU
#include "kernels.h"
#include "table.h"

#define K3_JOIN2(a, b) a##b
#define K3_JOIN(a, b) K3_JOIN2(a, b)

// A function of its own for each kernel's loop, and a copy of its struct that nothing else points to: what all
// programs share is loaded once.
#define K3_LOOP(name, Args)                                                                           \
  static __attribute__((noinline)) void name##_range(const void* args, u32 gx, u32 gy, u64 first, u64 last) { \
    const Args a = *(const Args*)args;                                                                \
    K3Place at = {(u32)(first % gx), (u32)(first / gx % gy), (u32)(first / gx / gy), gx, gy};         \
    for (u64 i = first; i < last; ++i) {                                                              \
      name(at, a);                                                                                    \
      if (++at.x == gx) {                                                                             \
        at.x = 0;                                                                                     \
        if (++at.y == gy) {                                                                           \
          at.y = 0;                                                                                   \
          ++at.z;                                                                                     \
        }                                                                                             \
      }                                                                                               \
    }                                                                                                 \
  }
K3_TABLE(K3_LOOP)

// Programs [first, last) of a grid of x * y * z, x fastest. Gives 0, or 1 for an unknown kernel.
extern "C" int K3_JOIN(k3_cpu_run_, K3_LEVEL)(int kernel, const void* args, u32 gx, u32 gy, u64 first, u64 last) {
  typedef void (*Range)(const void*, u32, u32, u64, u64);
#define K3_ENTRY(name, Args) name##_range,
  static const Range ranges[] = {K3_TABLE(K3_ENTRY)};
  if (kernel < 0 || kernel >= (int)(sizeof(ranges) / sizeof(*ranges))) return 1;
  ranges[kernel](args, gx, gy, first, last);
  return 0;
}
