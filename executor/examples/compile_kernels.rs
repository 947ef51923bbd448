//! Compiles the kernels for GPUs with NVRTC or hiprtc, on a machine with or without a GPU, into a folder that
//! `K3PLAN_KERNELS` names on the machine that runs them.
//!
//! Arguments: the folder, then targets such as `sm_90` or `gfx950`.

use std::path::PathBuf;

use executor::device::{Compiler, Vendor, code_name};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("wanted: a folder, then targets")?);
    std::fs::create_dir_all(&folder)?;
    for target in arguments {
        let vendor = if target.starts_with("sm_") { Vendor::Cuda } else { Vendor::Hip };
        let code = Compiler::load(vendor)?.compile(&target)?;
        std::fs::write(folder.join(code_name(&target)), code.bytes)?;
    }
    Ok(())
}
