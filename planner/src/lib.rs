//! vLLM's KV cache planning as a pure library: from a model's layers to KV cache groups and a block pool.
//!
//! Read in the order of the modules: what a layer declares ([`spec`]), which engine decides ([`engine`],
//! [`settings`]), how specs merge ([`merge`]) and layers group ([`group`]), what a block costs and how many
//! there are ([`pool`], [`capacity`]), and the whole as one value ([`plan`]).
//!
//! The crate does no I/O, reads no clock and no environment, and prints nothing.

pub mod capacity;
pub mod dtype;
pub mod engine;
pub mod error;
pub mod explain;
pub mod fit;
pub mod group;
pub mod import;
pub mod merge;
pub mod model;
pub mod plan;
pub mod pool;
pub mod replicas;
pub mod settings;
pub mod size;
pub mod spec;

pub use capacity::{GroupCapacity, Pool};
pub use engine::{BatchDefaults, BatchDevice, EngineVersion, Rules};
pub use error::{CapacityError, GroupingError, PythonClass};
pub use group::{Bucket, Decision, Group, GroupSpec, Grouping, PaddingWarning};
pub use model::{Model, SpecId};
pub use plan::{Plan, plan};
pub use settings::{EngineSettings, GroupSizeRule, Layout, MambaCacheMode};
pub use spec::{AttentionKind, AttentionSpec, Field, FieldValue, KvCacheSpec, MambaSpec, RawSpec, SpecKind};
