//! Element types of a cache, by their torch names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! dtypes {
    ($($variant:ident $name:literal $bytes:literal),+ $(,)?) => {
        /// A torch dtype that a KV cache or a state can have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum DType {
            $(#[doc = concat!("`torch.", $name, "`.")] #[serde(rename = $name)] $variant),+
        }

        impl DType {
            /// Every known dtype.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name as torch prints it, without `torch.`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Bytes of one element.
            pub const fn size_bytes(self) -> u64 {
                match self { $(Self::$variant => $bytes),+ }
            }
        }
    };
}

dtypes! {
    BFloat16 "bfloat16" 2,
    Float16 "float16" 2,
    Float32 "float32" 4,
    Float64 "float64" 8,
    UInt8 "uint8" 1,
    Int8 "int8" 1,
    Int16 "int16" 2,
    Int32 "int32" 4,
    Int64 "int64" 8,
    Float8E4M3Fn "float8_e4m3fn" 1,
    Float8E4M3Fnuz "float8_e4m3fnuz" 1,
    Float8E5M2 "float8_e5m2" 1,
    Float8E5M2Fnuz "float8_e5m2fnuz" 1,
    Float8E8M0Fnu "float8_e8m0fnu" 1,
    Bool "bool" 1,
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no known dtype.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no known dtype")]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(name: &str) -> Result<Self, UnknownDType> {
        let name = name.strip_prefix("torch.").unwrap_or(name);
        Self::ALL.iter().copied().find(|d| d.name() == name).ok_or_else(|| UnknownDType(name.to_owned()))
    }
}
