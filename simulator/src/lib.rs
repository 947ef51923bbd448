//! vLLM's scheduler step by step over a KV cache plan, and the cost of each step's metadata.
