//! Checked arithmetic on sizes: a product that leaves 64 bits is an error, never a wrap.

/// A size that does not fit 64 bits, or a division by nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {what} does not fit 64 bits")]
pub struct SizeError {
    /// Which quantity it was.
    pub what: &'static str,
}

/// The product of `factors`.
///
/// # Errors
/// If it does not fit 64 bits.
pub fn product(what: &'static str, factors: &[u64]) -> Result<u64, SizeError> {
    factors.iter().try_fold(1_u64, |a, b| a.checked_mul(*b)).ok_or(SizeError { what })
}

/// `a + b`.
///
/// # Errors
/// If it does not fit 64 bits.
pub fn add(what: &'static str, a: u64, b: u64) -> Result<u64, SizeError> {
    a.checked_add(b).ok_or(SizeError { what })
}

/// `a * b`.
///
/// # Errors
/// If it does not fit 64 bits.
pub fn mul(what: &'static str, a: u64, b: u64) -> Result<u64, SizeError> {
    a.checked_mul(b).ok_or(SizeError { what })
}

/// `ceil(a / b)`.
///
/// # Errors
/// If `b` is zero.
pub fn div_ceil(what: &'static str, a: u64, b: u64) -> Result<u64, SizeError> {
    if b == 0 { Err(SizeError { what }) } else { Ok(a.div_ceil(b)) }
}

/// `a` rounded up to a multiple of `b`.
///
/// # Errors
/// If `b` is zero or the result does not fit 64 bits.
pub fn round_up(what: &'static str, a: u64, b: u64) -> Result<u64, SizeError> {
    mul(what, div_ceil(what, a, b)?, b)
}

/// The greatest common divisor; `gcd(0, b) = b`.
pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The least common multiple.
///
/// # Errors
/// If it does not fit 64 bits.
pub fn lcm(what: &'static str, a: u64, b: u64) -> Result<u64, SizeError> {
    if a == 0 || b == 0 {
        return Ok(0);
    }
    mul(what, a / gcd(a, b), b)
}
