// bf16, fp8 (e4m3fn) and exp2, the same bits on every machine.
#pragma once

K3_INLINE u32 k3_bits(float x) { return __builtin_bit_cast(u32, x); }
K3_INLINE float k3_float(u32 x) { return __builtin_bit_cast(float, x); }

K3_INLINE float k3_from_bf16(u32 x) { return k3_float(x << 16); }

// e4m3fn scaled by 2^-120: the exponent and mantissa are moved, not converted. The scale is taken out where
// the sum ends, so subnormals are exact. Codes 0x7f and 0xff (NaN) read as +-480: the writer's only NaNs.
K3_INLINE float k3_from_e4m3_raw(u32 byte_on_top) {
  return k3_float((u32)((i32)byte_on_top >> 4) & 0x87f00000u);
}

// Round to nearest even, saturating at 448; NaN gives 0x7f (with the sign).
K3_INLINE u32 k3_to_e4m3(float x) {
  const u32 bits = k3_bits(x);
  const u32 sign = (bits >> 24) & 0x80u;
  const u32 size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 0x7fu;
  // Below 2^-6 the codes are multiples of 2^-9, the last bit of 2^14: the addition rounds.
  if (size < 0x3c800000u) return sign | (k3_bits(k3_float(size) + 16384.0f) - 0x46800000u);
  const u32 code = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
  return sign | (code > 0x7eu ? 0x7eu : code);
}
