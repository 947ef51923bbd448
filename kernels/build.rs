//! Compiles the kernels as plain C++: for the CPU, a copy for each level of x86-64, and as an emulated GPU.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    let x86 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let levels: &[&str] = if x86 { &["v2", "v3", "v4"] } else { &["base"] };
    for level in levels {
        let mut build = common();
        build.file("csrc/cpu.cpp").define("K3_LEVEL", *level);
        if x86 {
            build.flag(format!("-march=x86-64-{level}"));
        }
        build.flag("-fno-exceptions").flag("-fno-rtti").compile(&format!("k3_cpu_{level}"));
    }
    let mut build = common();
    build.file("csrc/emulate.cpp").compile("k3_emulate");
}

fn common() -> cc::Build {
    let mut build = cc::Build::new();
    // The tests of a debug build run the same kernels as a release build, at their speed.
    build.cpp(true).std("c++20").opt_level(3).debug(false).warnings(true).extra_warnings(true);
    build.flag_if_supported("-Wno-psabi").flag_if_supported("-Wno-unknown-pragmas");
    build
}
