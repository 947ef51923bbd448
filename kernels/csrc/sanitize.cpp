// Runs every kernel as an emulated GPU and as the CPU does, on threads, and compares: for the sanitizers.
//
// `scripts/sanitize.sh` builds it. Exit code 1 where the two differ.
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" int k3_emulate_run(int, const void*, u32, u32, u32, u32);
extern "C" int k3_cpu_run_base(int, const void*, u32, u32, u64, u64);

namespace {

enum Kernel {
  NOOP, STREAM, APPEND, GATHER, SLOTS, STARTS, POSITIONS, SPLIT, CHUNKS, STATES, WRITE, MLA_WRITE,
  GQA_BF16, GQA_FP8, MLA_BF16, MLA_FP8, COMBINE, STATE_UPDATE, STREAM_WRITE
};

u64 seed = 42;
u64 random_number() {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

// Arrays of exactly the size that is used, so that a step outside is seen; twice, one for each side.
struct Array {
  std::vector<unsigned char> side[2];
};

std::vector<Array*> arrays;

template <class T>
Array* array(const std::vector<T>& values) {
  Array* made = new Array;
  for (auto& side : made->side) {
    side.resize(values.size() * sizeof(T));
    if (!values.empty()) memcpy(side.data(), values.data(), side.size());
  }
  arrays.push_back(made);
  return made;
}

template <class T>
Array* zeros(size_t count) {
  return array(std::vector<T>(count));
}

struct Word {
  Array* array;
  u64 value;
  Word(Array* a) : array(a), value(0) {}
  Word(long long v) : array(nullptr), value((u64)v) {}
  Word(int v) : array(nullptr), value((u64)(long long)v) {}
  Word(double v) : array(nullptr), value(0) { memcpy(&value, &v, 8); }
};

int failures = 0;

void check(const char* name, int kernel, std::vector<Word> words, u32 gx, u32 gy, u32 threads, float tolerance = 0, int compared = -1) {
  for (int side = 0; side < 2; ++side) {
    std::vector<u64> args;
    for (const Word& w : words) args.push_back(w.array ? (u64)w.array->side[side].data() : w.value);
    if (side == 0) {
      k3_emulate_run(kernel, args.data(), gx, gy, 1, threads);
    } else {
      // Programs on two threads, as the CPU device spreads them.
      const u64 all = (u64)gx * gy, half = all / 2;
      std::thread first([&] { k3_cpu_run_base(kernel, args.data(), gx, gy, 0, half); });
      k3_cpu_run_base(kernel, args.data(), gx, gy, half, all);
      first.join();
    }
  }
  for (int i = 0; i < (int)words.size(); ++i) {
    const Word& w = words[i];
    if (!w.array || (compared >= 0 && i != compared)) continue;
    const auto &a = w.array->side[0], &b = w.array->side[1];
    bool same = a == b;
    if (!same && tolerance > 0) {
      same = true;
      for (size_t at = 0; at + 4 <= a.size(); at += 4) {
        float x, y;
        memcpy(&x, a.data() + at, 4);
        memcpy(&y, b.data() + at, 4);
        if (!(x - y <= tolerance && y - x <= tolerance)) same = false;
      }
    }
    if (!same) {
      ++failures;
      std::printf("%s: the emulated GPU and the CPU differ\n", name);
      return;
    }
  }
}

std::vector<int> ints(size_t count, int low, int high) {
  std::vector<int> v(count);
  for (int& x : v) x = low + (int)(random_number() % (u64)(high - low + 1));
  return v;
}

void round_of_checks(u32 threads) {
  const int groups = 3, rows = 5, reqs = 4;
  std::vector<long long> strides = {3, 9, 20}, offsets = {0, 16, 70};
  const int len = 70 + rows * 20;
  Array *stride = array(strides), *offset = array(offsets), *tables = array(ints(len, 0, 50));
  Array* blocks = array(ints(groups * rows, 0, 3));
  Array* ids = array(ints(12, 0, 99));
  check("append", APPEND,
        {array<int>({0, 1, 2, 1, 9}), array<int>({0, 1, 4, 2, 0}), array<int>({0, 4, 17, 8, 0}), array<int>({0, 3, 6, 9, 12, 12}),
         ids, tables, offset, stride, blocks, 5, groups, rows, 12, len},
        5, 1, threads);
  Array* idx = array<int>({2, -1, 0, 4});
  check("gather", GATHER, {idx, tables, array(ints(len, 0, 9)), offset, stride, blocks, reqs, 5, groups, rows, len}, 5, groups, threads);

  const std::vector<int> query = {1, 0, 37, 70};
  std::vector<int> starts = {0, 1, 1, 38, 108};
  const int tokens = 108;
  Array* computed = array<int>({5, 0, 64, 3});
  check("sequence_starts", STARTS, {computed, array(query), zeros<int>(7), zeros<int>(6), reqs, 6}, 1, 1, threads);
  Array* positions = zeros<long long>(tokens);
  check("positions", POSITIONS, {computed, array(starts), positions, reqs, tokens}, reqs, 1, threads);
  check("slot_mapping", SLOTS,
        {idx, array(starts), positions, tables, offset, stride, array<int>({16, 16, 64}), array<int>({1, 0, 1}),
         array<int>({1, 1, 0}), zeros<long long>(groups * 120), reqs, groups, rows, 120, len, 2, 1, 8},
        reqs + 1, groups, threads);
  for (int uniform = 0; uniform < 2; ++uniform)
    check("split", SPLIT, {array(starts), array<int>({0, 0, 1, 1}), zeros<int>(4), reqs, 8, uniform, 1 - uniform}, 1, 1, threads);
  check("chunk_indices", CHUNKS, {array(starts), zeros<int>(2 * 6), zeros<long long>(reqs + 1), reqs, 16, 6}, 1, 1, threads);
  check("kda_state_indices", STATES, {tables, array<int>({6, 1, 101, 73}), zeros<int>(5 * 8), reqs, 5, 9, 7, 16}, 5, 1, threads);

  for (int fp8 = 0; fp8 < 2; ++fp8) {
    const int heads = 2, size = 64, block = 3, count = 6, element = fp8 ? 1 : 2, head = size * element;
    const int row = heads * head, half = block * row, cache_bytes = count * 2 * half;
    std::vector<unsigned short> keys(7 * heads * size);
    for (auto& k : keys) k = (unsigned short)random_number();
    Array* slots = array<long long>({0, 17, -1, 5, 18, 9, 2});
    Array* cache = zeros<unsigned char>(cache_bytes);
    check("kv_cache_write", WRITE,
          {array(keys), array(keys), slots, cache, 7, heads, size, block, count, 2 * half, half, row, head, fp8, 0.5}, 7, 1, threads);
    check("mla_cache_write", MLA_WRITE,
          {array(keys), array(keys), slots, zeros<unsigned char>(count * block * 80 * element), 7, 64, 16, block, count,
           block * 80 * element, 80 * element, fp8, 0.5},
          7, 1, threads);
    std::vector<unsigned char> filled(cache_bytes);
    for (size_t i = 0; i < filled.size(); ++i)
      filled[i] = (unsigned char)(i % 2 && !fp8 ? (random_number() & 0x87) | 0x38 : random_number() & 0xbf);
    Array *read_cache = array(filled), *table = array(ints(4 * 7, -1, 7)), *lens = array<int>({21, 0, 4, 13});
    const int gqa_pieces = row / 16, mla_pieces = 64 * element / 16;
    const int gqa_each = gqa_pieces < (int)threads ? gqa_pieces : (int)threads;
    const int mla_each = mla_pieces < (int)threads ? mla_pieces : (int)threads;
    for (int mla = 0; mla < 2; ++mla) {
      const int workers = (int)threads / (mla ? mla_each : gqa_each), parts = 2 * workers;
      const int sums = 4 * parts * (mla ? 64 : 2 * heads * size), result = (mla ? 64 : 2 * heads * size);
      Array* partial = zeros<float>(sums);
      check("read", mla ? (fp8 ? MLA_FP8 : MLA_BF16) : (fp8 ? GQA_FP8 : GQA_BF16),
            {read_cache, table, lens, partial, 4, 7, count, block, mla ? 1 : heads, 64, 2, workers, mla ? 10 : 0, 2 * half, half,
             mla ? head : row, head, 0.25},
            4, 2, threads, 0, 0);  // the parts are cut differently; their sums must agree
      check("read_combine", COMBINE, {partial, zeros<float>(4 * result), 4, parts, result}, 4, 1, threads, 1e-4f, 1);
    }
  }
  std::vector<u32> words(16 * 33);
  for (u32& w : words) w = (u32)random_number();
  check("stream_read", STREAM, {array(words), zeros<u32>(3), (long long)words.size() * 4, 3}, 3, 1, threads);
  check("stream_write", STREAM_WRITE, {zeros<u32>(16 * 33), 64 * 33, 3, 7}, 3, 1, threads);
  // Two states a request, and one without; the last goes on from its second state.
  check("state_update", STATE_UPDATE,
        {array(ints(7 * 52, 0, 1 << 30)), array<int>({1, 2, 0, 3, 4, 5, 0, 6}), array<int>({1, 1, 2, 9}),
         array<int>({0, 2, 3, 5, 5}), 4, 2, 7, 208, 48, 160, 3},
        4, 3, threads);
  check("noop", NOOP, {0}, 1, 1, 1);
}

}  // namespace

// With an argument, one number of threads a block instead of four.
int main(int arguments, char**) {
  std::vector<u32> blocks = {1, 2, 5, 8};
  if (arguments > 1) blocks = {5};
  for (u32 threads : blocks) round_of_checks(threads);
  for (Array* a : arrays) delete a;
  std::printf("%d kernels, %d differences\n", STREAM_WRITE + 1, failures);
  return failures ? 1 : 0;
}
