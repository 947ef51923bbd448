//! What is the text of the kernels, in one piece, for a compiler that finds no files?

const FILES: [(&str, &str); 9] = [
    ("shim.h", include_str!("../csrc/shim.h")),
    ("numbers.h", include_str!("../csrc/numbers.h")),
    ("block_table.h", include_str!("../csrc/block_table.h")),
    ("slot_mapping.h", include_str!("../csrc/slot_mapping.h")),
    ("metadata.h", include_str!("../csrc/metadata.h")),
    ("kv_cache_write.h", include_str!("../csrc/kv_cache_write.h")),
    ("paged_read.h", include_str!("../csrc/paged_read.h")),
    ("state_update.h", include_str!("../csrc/state_update.h")),
    ("probe.h", include_str!("../csrc/probe.h")),
];

/// All kernels as one translation unit, without an `#include`.
pub fn gpu() -> String {
    let mut all = String::new();
    for (name, text) in FILES {
        all.push_str(&format!("#line 1 \"{name}\"\n"));
        for line in text.lines().filter(|line| *line != "#pragma once") {
            all.push_str(line);
            all.push('\n');
        }
    }
    all
}

/// What names the code that [`gpu`] compiles to: changes with every change of the text (FNV-1a, 64 bits).
pub fn fingerprint() -> u64 {
    gpu()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Kernel;

    #[test]
    fn every_kernel_is_in_the_text_and_no_header_is() {
        let text = gpu();
        for kernel in Kernel::ALL {
            assert!(text.contains(&format!("K3_KERNEL({},", kernel.symbol())), "{kernel:?}");
        }
        assert!(!text.contains("#include"));
    }

    #[test]
    fn numbers_are_those_of_the_table() {
        let table = include_str!("../csrc/table.h");
        let symbols: Vec<&str> =
            table.lines().filter_map(|l| l.trim().strip_prefix("ENTRY(")?.split(',').next()).collect();
        let ours: Vec<&str> = Kernel::ALL.iter().map(|k| k.symbol()).collect();
        assert_eq!(symbols, ours);
        assert!(Kernel::ALL.iter().enumerate().all(|(i, k)| usize::try_from(k.number()) == Ok(i)));
    }
}
