// How the kernels name the machine: NVRTC, HIP (hiprtc and clang for amdgcn), the CPU, and the emulated GPU.
//
// No header is included anywhere in the kernels, so the sources are one string for every compiler. A kernel
// takes ONE struct by value whose fields are all eight bytes wide (pointers, `i64`, `double`).
//
// K3_CPU      one program is one call; a block has one thread, K3_SYNC is nothing.
// K3_EMULATE  the GPU's code with a real thread for each GPU thread: what the sanitizers run.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#if defined(K3_CPU)

struct K3Place {
  u32 x, y, z, gx, gy;
};
#define K3_INLINE static inline __attribute__((always_inline))
#define K3_INLINE_MEMBER inline __attribute__((always_inline))
#define K3_UNROLL _Pragma("GCC unroll 16")
#define K3_KERNEL(name, Args) K3_INLINE void name([[maybe_unused]] const K3Place& at, [[maybe_unused]] const Args& a)
#define K3_BLOCK_X ((i64)at.x)
#define K3_BLOCK_Y ((i64)at.y)
#define K3_BLOCK_Z ((i64)at.z)
// The grid's own size, for the kernels that take any grid here.
#define K3_GRID_X ((i64)at.gx)
#define K3_GRID_Y ((i64)at.gy)
#define K3_THREAD 0
#define K3_THREADS 1
#define K3_SYNC()
#define K3_SHARED(type, name, count) type name[count]
#define K3_PLACE at
#define K3_PLACE_PARAM const K3Place&

#elif defined(K3_EMULATE)

struct K3Place;
int k3_emulated_thread(const K3Place&);
int k3_emulated_threads(const K3Place&);
void k3_emulated_sync(const K3Place&);
void* k3_emulated_shared(const K3Place&, u64 bytes);
struct K3Place {
  u32 x, y, z;
  int thread;
  void* team;
};
#define K3_UNROLL
#define K3_INLINE static inline
#define K3_KERNEL(name, Args) static void name([[maybe_unused]] const K3Place& at, [[maybe_unused]] const Args& a)
#define K3_BLOCK_X ((i64)at.x)
#define K3_BLOCK_Y ((i64)at.y)
#define K3_BLOCK_Z ((i64)at.z)
#define K3_THREAD k3_emulated_thread(at)
#define K3_THREADS k3_emulated_threads(at)
#define K3_SYNC() k3_emulated_sync(at)
#define K3_SHARED(type, name, count) type* name = (type*)k3_emulated_shared(at, sizeof(type) * (count))
#define K3_PLACE at
#define K3_PLACE_PARAM const K3Place&

#else

#define K3_UNROLL _Pragma("unroll")
// A GPU. `K3_PLACE` carries nothing there.
struct K3Nowhere {};
#define K3_PLACE K3Nowhere()
#define K3_PLACE_PARAM K3Nowhere

#if defined(__AMDGCN__) || defined(__HIP_DEVICE_COMPILE__) || defined(__HIPCC_RTC__)

// HIP's language attributes, spelt without the header that names them.
#define K3_INLINE static __attribute__((device)) inline __attribute__((always_inline))
#define K3_GLOBAL extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 1024)))
#define K3_SHARED(type, name, count) __attribute__((shared)) type name[count]
// The implicit kernel arguments hold the block size as three u16, 12 bytes in (code object version 5).
#define K3_THREADS                                                                                        \
  ((int)((const __attribute__((address_space(4))) u16*)__builtin_amdgcn_implicitarg_ptr())[6])
#define K3_THREAD ((int)__builtin_amdgcn_workitem_id_x())
#define K3_BLOCK_X ((i64)__builtin_amdgcn_workgroup_id_x())
#define K3_BLOCK_Y ((i64)__builtin_amdgcn_workgroup_id_y())
#define K3_BLOCK_Z ((i64)__builtin_amdgcn_workgroup_id_z())
K3_INLINE void k3_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define K3_SYNC() k3_sync()
typedef u32 K3Vec __attribute__((ext_vector_type(4)));
K3_INLINE K3Vec k3_load16(const u8* from) { return __builtin_nontemporal_load((const K3Vec*)from); }
K3_INLINE void k3_store16(u8* to, K3Vec v) { *(K3Vec*)to = v; }
K3_INLINE K3Vec k3_plus(K3Vec v, u32 each) { return v + each; }
#define K3_WORD(vector, index) ((vector)[index])

#elif defined(__CUDACC_RTC__) || defined(__CUDACC__)

#define K3_INLINE static __device__ __forceinline__
#define K3_GLOBAL extern "C" __global__
#define K3_SHARED(type, name, count) __shared__ type name[count]
#define K3_THREAD ((int)threadIdx.x)
#define K3_THREADS ((int)blockDim.x)
#define K3_BLOCK_X ((i64)blockIdx.x)
#define K3_BLOCK_Y ((i64)blockIdx.y)
#define K3_BLOCK_Z ((i64)blockIdx.z)
#define K3_SYNC() __syncthreads()
typedef uint4 K3Vec;
K3_INLINE K3Vec k3_load16(const u8* from) { return __ldcs((const uint4*)from); }
K3_INLINE void k3_store16(u8* to, K3Vec v) { *(uint4*)to = v; }
K3_INLINE K3Vec k3_plus(K3Vec v, u32 each) { return make_uint4(v.x + each, v.y + each, v.z + each, v.w + each); }
#define K3_WORD(vector, index) ((index) == 0 ? (vector).x : (index) == 1 ? (vector).y : (index) == 2 ? (vector).z : (vector).w)

#else
#error "a compiler that the kernels do not know"
#endif

#define K3_KERNEL(name, Args) K3_GLOBAL void name(Args a)
#endif

#if defined(K3_EMULATE)
struct K3Vec {
  u32 word[4];
};
K3_INLINE K3Vec k3_load16(const u8* from) {
  K3Vec v;
  __builtin_memcpy(&v, from, 16);
  return v;
}
K3_INLINE void k3_store16(u8* to, K3Vec v) { __builtin_memcpy(to, &v, 16); }
K3_INLINE K3Vec k3_plus(K3Vec v, u32 each) {
  for (u32& word : v.word) word += each;
  return v;
}
#define K3_WORD(vector, index) ((vector).word[index])
#endif

#if defined(K3_CPU)
#if defined(__AVX512F__)
#define K3_WIDTH 64
#elif defined(__AVX__)
#define K3_WIDTH 32
#else
#define K3_WIDTH 16
#endif
#define K3_FLOATS (K3_WIDTH / 4)

typedef float K3F __attribute__((vector_size(K3_WIDTH)));
typedef u32 K3U __attribute__((vector_size(K3_WIDTH)));
typedef u32 K3Loose __attribute__((vector_size(K3_WIDTH), aligned(1), may_alias));
K3_INLINE K3U k3_load_wide(const u8* from) { return (K3U) * (const K3Loose*)from; }
// Pieces of 16 bytes, as a GPU has them.
typedef u32 K3Vec __attribute__((vector_size(16)));
typedef u32 K3LooseVec __attribute__((vector_size(16), aligned(1), may_alias));
K3_INLINE K3Vec k3_load16(const u8* from) { return (K3Vec) * (const K3LooseVec*)from; }
K3_INLINE void k3_store16(u8* to, K3Vec v) { *(K3LooseVec*)to = (K3LooseVec)v; }
K3_INLINE K3Vec k3_plus(K3Vec v, u32 each) { return v + each; }
#endif

static_assert(sizeof(void*) == 8, "kernel arguments are words of eight bytes");

K3_INLINE i64 k3_min(i64 x, i64 y) { return x < y ? x : y; }
K3_INLINE i64 k3_max(i64 x, i64 y) { return x > y ? x : y; }
