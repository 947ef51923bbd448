//! What numbers do bf16 and fp8 (e4m3fn) codes stand for, and which code is nearest a number?

/// The number of a bf16 code.
pub fn from_bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// The number of an e4m3fn code; 0x7f and 0xff, NaN in the standard, are taken as 480 and -480 by the reads.
pub fn from_e4m3(code: u8) -> f64 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((code >> 3) & 0xf);
    let mantissa = f64::from(code & 7);
    let size = if exponent == 0 {
        mantissa / 512.0
    } else {
        (1.0 + mantissa / 8.0) * f64::from(exponent - 7).exp2()
    };
    sign * size
}

/// The nearest e4m3fn code, ties to the even code, saturating at 448; NaN gives 0x7f with the sign.
///
/// # Source
/// `__NV_SATFINITE` of CUDA's `__nv_cvt_float_to_fp8`, which vLLM's cache writes use.
pub fn to_e4m3(number: f32) -> u8 {
    let sign = if number.is_sign_negative() { 0x80 } else { 0 };
    if number.is_nan() {
        return sign | 0x7f;
    }
    let size = f64::from(number.abs()).min(448.0);
    let mut best = 0_u8;
    for code in 1..=0x7e_u8 {
        let nearer = (from_e4m3(code) - size).abs() - (from_e4m3(best) - size).abs();
        if nearer < 0.0 || (nearer == 0.0 && code % 2 == 0) {
            best = code;
        }
    }
    sign | best
}
