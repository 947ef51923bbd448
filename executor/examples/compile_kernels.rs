//! Compiles the kernels for GPUs, on a machine with or without one, into a folder that `K3PLAN_KERNELS` names on the
//! machine that runs them.
//!
//! Arguments: the folder, then targets such as `sm_90` or `gfx950`. NVRTC compiles for NVIDIA, hiprtc for AMD; with
//! `K3PLAN_AMDGCN`, the folder of `amdgcn-clang` and `amdgcn-lld` (`scripts/install-compilers.sh`), these two do.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use executor::device::{Compiler, Vendor, code_name};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("wanted: a folder, then targets")?);
    std::fs::create_dir_all(&folder)?;
    let clang = std::env::var_os("K3PLAN_AMDGCN").map(PathBuf::from);
    for target in arguments {
        let to = folder.join(code_name(&target));
        match (&clang, target.starts_with("sm_")) {
            (_, true) => std::fs::write(to, Compiler::load(Vendor::Cuda)?.compile(&target)?.bytes)?,
            (Some(tools), false) => amdgcn(tools, &target, &folder, &to)?,
            (None, false) => std::fs::write(to, Compiler::load(Vendor::Hip)?.compile(&target)?.bytes)?,
        }
    }
    Ok(())
}

fn amdgcn(tools: &Path, target: &str, folder: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let (source, object) = (folder.join("kernels.hip"), folder.join("kernels.o"));
    std::fs::write(&source, kernels::source::gpu())?;
    let run = |command: &mut Command| -> Result<(), Box<dyn Error>> {
        if command.status()?.success() { Ok(()) } else { Err(format!("{command:?} failed").into()) }
    };
    run(Command::new(tools.join("amdgcn-clang")).arg(target).arg(&source).arg(&object))?;
    run(Command::new(tools.join("amdgcn-lld")).arg(&object).arg(to))?;
    std::fs::remove_file(source)?;
    Ok(std::fs::remove_file(object)?)
}
