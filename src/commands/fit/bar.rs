//! Where the memory goes, as a bar: shares whose printed figures add up as the bytes do.

use std::io;

use planner::fit::{Budget, Fit};

use crate::render::number::bytes;
use crate::render::table::{Side, Table};
use crate::terminal::Terminal;

/// Columns of the bar.
const COLUMNS: u64 = 60;

/// Every share of the memory: name, key, letter in the bar, bytes.
pub(super) fn shares(budget: &Budget, fit: &Fit) -> Vec<(&'static str, &'static str, char, u64)> {
    let shares = &fit.shares;
    vec![
        ("left by utilization", "unused", '.', budget.unused_bytes),
        ("weights", "weights", 'W', budget.weights_bytes),
        ("overhead", "overhead", 'O', budget.overhead_bytes),
        ("KV of the requests", "requests", 'K', shares.requests),
        ("padded pages", "page_padding", 'g', shares.page_padding),
        ("padding layers", "padding_layers", 'p', shares.padding_layers),
        ("block rounding", "block_rounding", 'r', shares.block_rounding),
        ("free blocks", "free_blocks", '-', shares.free_blocks),
        ("null block", "null_block", '0', shares.null_block),
        ("less than a block", "remainder", '<', shares.remainder),
    ]
}

/// `total` parts, shared out as `sizes` are, so that they add up: the largest fractions are rounded up.
pub(super) fn apportion(sizes: &[u64], total: u64) -> Vec<u64> {
    let whole: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
    if whole == 0 {
        return vec![0; sizes.len()];
    }
    let scaled = |size: u64| u128::from(size) * u128::from(total);
    let mut parts: Vec<u64> =
        sizes.iter().map(|size| u64::try_from(scaled(*size) / whole).unwrap_or(0)).collect();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(scaled(sizes[*i]) % whole));
    let missing = total - parts.iter().sum::<u64>();
    for i in order.into_iter().take(usize::try_from(missing).unwrap_or(0)) {
        parts[i] += 1;
    }
    parts
}

/// The bar and its table.
pub(super) fn write(budget: &Budget, fit: &Fit, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let shares = shares(budget, fit);
    let sizes: Vec<u64> = shares.iter().map(|(.., bytes)| *bytes).collect();
    let total = budget.total_bytes();
    let columns = apportion(&sizes, COLUMNS);
    let mut bar = String::new();
    for ((_, _, letter, _), columns) in shares.iter().zip(columns) {
        bar.extend(std::iter::repeat_n(*letter, usize::try_from(columns).unwrap_or(0)));
    }
    writeln!(terminal.out, "[{bar}] {}", bytes(total))?;
    // Hundredths of a GiB, rounded as a whole.
    let hundredths = u64::try_from((u128::from(total) * 100 + (1 << 29)) >> 30).unwrap_or(u64::MAX);
    let gib = apportion(&sizes, hundredths);
    let percents = apportion(&sizes, 10_000);
    let decimal = |n: u64| format!("{}.{:02}", n / 100, n % 100);
    let mut table = Table::new(vec![
        ("", Side::Left),
        ("where it goes", Side::Left),
        ("GiB", Side::Right),
        ("%", Side::Right),
        ("bytes", Side::Right),
    ]);
    for ((name, _, letter, own), (gib, percent)) in shares.iter().zip(gib.into_iter().zip(percents)) {
        if *own > 0 {
            table.row(vec![
                letter.to_string(),
                (*name).to_owned(),
                decimal(gib),
                decimal(percent),
                crate::render::number::thousands(*own),
            ]);
        }
    }
    table.row(vec![
        String::new(),
        "together".to_owned(),
        decimal(hundredths),
        decimal(10_000),
        crate::render::number::thousands(total),
    ]);
    table.write(0, terminal)
}

#[cfg(test)]
mod tests {
    use super::apportion;

    #[test]
    fn parts_add_up() {
        assert_eq!(apportion(&[1, 1, 1], 100), [34, 33, 33]);
        assert_eq!(apportion(&[0, 0], 100), [0, 0]);
        for total in [1, 7, 60, 8000] {
            let sizes = [u64::MAX / 3, 1, 0, 12_345, u64::MAX / 7];
            assert_eq!(apportion(&sizes, total).iter().sum::<u64>(), total);
        }
    }
}
