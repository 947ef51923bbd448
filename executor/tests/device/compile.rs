//! The kernels compile for GPUs without one: with NVRTC, registers and spills within limits; with clang, code
//! objects for AMD. What is not installed is said, not failed; `scripts/install-compilers.sh` installs both, and
//! with `K3PLAN_NEED_COMPILERS` set a missing one fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use executor::device::{Compiler, Vendor};
use kernels::Kernel;

/// The most registers of each kernel for sm_90 and sm_100: what NVRTC 12.9 takes, rounded up to the multiple of
/// 8 that a thread is given. More is a regression to look at, not to wave through.
const REGISTERS: [(Kernel, [u32; 2]); 19] = [
    (Kernel::Noop, [8, 8]),
    (Kernel::StreamRead, [32, 32]),
    (Kernel::BlockTableAppend, [32, 40]),
    (Kernel::BlockTableGather, [24, 32]),
    (Kernel::SlotMapping, [48, 48]),
    (Kernel::SequenceStarts, [24, 24]),
    (Kernel::Positions, [32, 32]),
    (Kernel::DecodePrefillSplit, [32, 40]),
    (Kernel::ChunkIndices, [32, 24]),
    (Kernel::KdaStateIndices, [24, 24]),
    (Kernel::KvCacheWrite, [32, 32]),
    (Kernel::MlaCacheWrite, [24, 32]),
    (Kernel::GqaReadBf16, [64, 72]),
    (Kernel::GqaReadFp8, [88, 88]),
    (Kernel::MlaReadBf16, [56, 56]),
    (Kernel::MlaReadFp8, [64, 64]),
    (Kernel::ReadCombine, [32, 32]),
    (Kernel::StateUpdate, [32, 32]),
    (Kernel::StreamWrite, [32, 32]),
];

fn missing(what: &str) {
    assert!(std::env::var_os("K3PLAN_NEED_COMPILERS").is_none(), "{what} is needed, but not there");
    eprintln!("not checked: {what} is not there; `scripts/install-compilers.sh` installs it");
}

fn tool(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools").join(name)
}

fn nvrtc() -> Option<Compiler> {
    let mut names = vec![tool("nvrtc/libnvrtc.so.12").to_string_lossy().into_owned()];
    names.extend(Vendor::Cuda.compiler_names());
    let compiler = Compiler::load_any(Vendor::Cuda, &names).ok();
    if compiler.is_none() {
        missing("NVRTC");
    }
    compiler
}

/// Registers, and bytes of spills, from the log of ptxas.
fn figures(log: &str, symbol: &str) -> (u32, u32) {
    let own =
        log.split("Compiling entry function '").find(|part| part.starts_with(&format!("{symbol}'"))).unwrap();
    let before = |word: &str| -> Vec<u32> {
        own.match_indices(word)
            .map(|(at, _)| own[..at].trim_end().rsplit(' ').next().unwrap().parse().unwrap())
            .collect()
    };
    let spills = before("bytes spill stores").iter().chain(&before("bytes spill loads")).sum();
    (before("registers")[0], spills)
}

#[test]
fn nvrtc_compiles_without_spills() {
    let Some(compiler) = nvrtc() else { return };
    for (column, target) in ["sm_90", "sm_100"].into_iter().enumerate() {
        let code = compiler.compile(target).unwrap();
        assert_eq!(&code.bytes[..4], b"\x7fELF");
        for (kernel, most) in REGISTERS {
            let most = most[column];
            let (registers, spills) = figures(&code.log, kernel.symbol());
            assert!(registers <= most, "{kernel:?} for {target}: {registers} registers, {most} at most");
            assert_eq!(spills, 0, "{kernel:?} for {target} spills");
        }
    }
}

#[test]
fn a_compiler_says_what_it_does_not_know() {
    let Some(compiler) = nvrtc() else { return };
    let error = compiler.compile("sm_1").unwrap_err().to_string();
    assert!(error.starts_with("compile the kernels for sm_1 with NVRTC: "), "{error}");
    assert!(error.contains("sm_1"), "{error}");
}

#[test]
fn clang_compiles_for_amd() {
    let (clang, linker) = (tool("amdgcn-clang"), tool("amdgcn-lld"));
    if !clang.exists() {
        return missing("clang for amdgcn (.tools/amdgcn-clang)");
    }
    let folder = tempfile::TempDir::new().unwrap();
    let source = folder.path().join("kernels.hip");
    std::fs::write(&source, kernels::source::gpu()).unwrap();
    for target in ["gfx942", "gfx950"] {
        let (object, code) = (folder.path().join("kernels.o"), folder.path().join("kernels.co"));
        let run = |command: &mut Command| {
            let done = command.output().unwrap();
            assert!(done.status.success(), "{target}: {}", String::from_utf8_lossy(&done.stderr));
        };
        run(Command::new(&clang).arg(target).arg(&source).arg(&object));
        run(Command::new(&linker).arg(&object).arg(&code));
        let code = std::fs::read(&code).unwrap();
        assert_eq!(&code[..4], b"\x7fELF");
        for kernel in Kernel::ALL {
            // The descriptor that the loader looks for.
            let name = format!("{}.kd", kernel.symbol());
            assert!(code.windows(name.len()).any(|window| window == name.as_bytes()), "{target}: {name}");
        }
    }
}
