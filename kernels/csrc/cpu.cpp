// The kernels as plain C++: runs a range of a launch's programs on the calling thread.
//
// Compiled once for each level of the x86-64 instruction set, with K3_LEVEL naming the symbol.
#define K3_CPU
#include "kernels.h"
#include "table.h"

#define K3_JOIN2(a, b) a##b
#define K3_JOIN(a, b) K3_JOIN2(a, b)

// Programs [first, last) of a grid of x * y * z, x fastest. Gives 0, or 1 for an unknown kernel.
extern "C" int K3_JOIN(k3_cpu_run_, K3_LEVEL)(int kernel, const void* args, u32 gx, u32 gy, u64 first, u64 last) {
  int number = 0;
#define K3_RUN(name, Args)                                                            \
  if (kernel == number++) {                                                           \
    const Args& a = *(const Args*)args;                                               \
    K3Place at = {(u32)(first % gx), (u32)(first / gx % gy), (u32)(first / gx / gy)}; \
    for (u64 i = first; i < last; ++i) {                                              \
      name(at, a);                                                                    \
      if (++at.x == gx) {                                                             \
        at.x = 0;                                                                     \
        if (++at.y == gy) {                                                           \
          at.y = 0;                                                                   \
          ++at.z;                                                                     \
        }                                                                             \
      }                                                                               \
    }                                                                                 \
    return 0;                                                                         \
  }
  K3_TABLE(K3_RUN)
  return 1;
}
