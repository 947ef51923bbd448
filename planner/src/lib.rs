//! vLLM's KV cache planning as a pure library.
