// The GPU's code on the CPU, with a real thread for each GPU thread of a block: what tests and sanitizers run.
#define K3_EMULATE
#include "kernels.h"
#include "table.h"

#include <barrier>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Team {
  explicit Team(int threads) : threads(threads), barrier(threads) {}
  int threads;
  std::barrier<> barrier;
  std::mutex mutex;
  // Shared memory by place of declaration: the order in which a thread asks.
  std::vector<std::vector<char>> shared;
};

struct Member {
  Team* team;
  size_t asked;
};

Member& member(const K3Place& at) { return *static_cast<Member*>(at.team); }

}  // namespace

int k3_emulated_thread(const K3Place& at) { return at.thread; }
int k3_emulated_threads(const K3Place& at) { return member(at).team->threads; }
#if defined(K3_WITHOUT_BARRIERS)
// For the test of the sanitizer alone.
void k3_emulated_sync(const K3Place&) {}
#else
void k3_emulated_sync(const K3Place& at) { member(at).team->barrier.arrive_and_wait(); }
#endif
void* k3_emulated_shared(const K3Place& at, u64 bytes) {
  Member& m = member(at);
  const std::lock_guard<std::mutex> lock(m.team->mutex);
  const size_t which = m.asked++;
  // Room for the few declarations of a kernel: the addresses must not move.
  m.team->shared.reserve(16);
  while (m.team->shared.size() <= which) m.team->shared.emplace_back(bytes);
  return m.team->shared[which].data();
}

// A whole grid, block after block, `threads` threads in each. Gives 0, or 1 for an unknown kernel.
extern "C" int k3_emulate_run(int kernel, const void* args, u32 gx, u32 gy, u32 gz, u32 threads) {
  int number = 0;
#define K3_RUN(name, Args)                                         \
  if (kernel == number++) {                                        \
    const Args& a = *static_cast<const Args*>(args);               \
    for (u32 z = 0; z < gz; ++z)                                   \
      for (u32 y = 0; y < gy; ++y)                                 \
        for (u32 x = 0; x < gx; ++x) {                             \
          Team team((int)threads);                                 \
          std::vector<std::thread> members;                        \
          for (int t = 0; t < (int)threads; ++t)                   \
            members.emplace_back([&team, &a, x, y, z, t] {         \
              Member self{&team, 0};                               \
              name(K3Place{x, y, z, t, &self}, a);                 \
              team.barrier.arrive_and_drop();                      \
            });                                                    \
          for (std::thread & m : members) m.join();                \
        }                                                          \
    return 0;                                                      \
  }
  K3_TABLE(K3_RUN)
  return 1;
}
