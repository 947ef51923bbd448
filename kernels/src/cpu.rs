//! How do the kernels run on this machine: as plain C++ at the best level of its instruction set, or as an
//! emulated GPU with a thread for each GPU thread?

#![expect(unsafe_code, reason = "calls the kernels, which are C++")]

use crate::registry::Kernel;

type Run = unsafe extern "C" fn(i32, *const u64, u32, u32, u64, u64) -> i32;

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn k3_cpu_run_v2(kernel: i32, args: *const u64, gx: u32, gy: u32, first: u64, last: u64) -> i32;
    fn k3_cpu_run_v3(kernel: i32, args: *const u64, gx: u32, gy: u32, first: u64, last: u64) -> i32;
    fn k3_cpu_run_v4(kernel: i32, args: *const u64, gx: u32, gy: u32, first: u64, last: u64) -> i32;
}

#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" {
    fn k3_cpu_run_base(kernel: i32, args: *const u64, gx: u32, gy: u32, first: u64, last: u64) -> i32;
}

unsafe extern "C" {
    fn k3_emulate_run(kernel: i32, args: *const u64, gx: u32, gy: u32, gz: u32, threads: u32) -> i32;
}

/// A level of the instruction set that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What the compiler takes for granted.
    Base,
    /// x86-64-v3: AVX2 and FMA.
    V3,
    /// x86-64-v4: AVX-512.
    V4,
}

impl Level {
    /// The best level that this machine has.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let v3 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("movbe");
            let v4 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if v3 && v4 {
                return Self::V4;
            }
            if v3 {
                return Self::V3;
            }
        }
        Self::Base
    }

    fn run(self) -> Run {
        #[cfg(target_arch = "x86_64")]
        {
            match self {
                Self::Base => k3_cpu_run_v2,
                Self::V3 => k3_cpu_run_v3,
                Self::V4 => k3_cpu_run_v4,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            k3_cpu_run_base
        }
    }

    /// The name of the level: `x86-64-v4`, or `base`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base if cfg!(target_arch = "x86_64") => "x86-64-v2",
            Self::Base => "base",
            Self::V3 => "x86-64-v3",
            Self::V4 => "x86-64-v4",
        }
    }
}

/// Runs the programs `[first, last)` of a grid on this thread, x fastest.
///
/// # Safety
/// `level` is at most [`Level::best`]. `args` are the words of the kernel's struct in [`crate::args`], and every
/// address in them is that of host memory of the shape the struct's comment says, alive and not written by
/// anybody else during the call; `gx` and `gy` are above zero.
pub unsafe fn run(level: Level, kernel: Kernel, args: &[u64], gx: u32, gy: u32, first: u64, last: u64) {
    // SAFETY: as the caller promises; the kernels check what data can get wrong (ids, rows, lengths).
    let code = unsafe { level.run()(kernel.number(), args.as_ptr(), gx, gy, first, last) };
    debug_assert_eq!(code, 0, "a kernel that csrc/table.h does not list");
}

/// Runs a whole grid as a GPU would, a thread for each thread of a block, block after block.
///
/// # Safety
/// As [`run`]; `threads` is from 1 to 1024.
pub unsafe fn emulate(kernel: Kernel, args: &[u64], grid: [u32; 3], threads: u32) {
    // SAFETY: as the caller promises.
    let code = unsafe { k3_emulate_run(kernel.number(), args.as_ptr(), grid[0], grid[1], grid[2], threads) };
    debug_assert_eq!(code, 0, "a kernel that csrc/table.h does not list");
}
