// The kernels by number, in the order of `Kernel` in src/registry.rs.
#define K3_TABLE(ENTRY)                                 \
  ENTRY(k3_noop, K3Noop)                                \
  ENTRY(k3_stream_read, K3StreamRead)                   \
  ENTRY(k3_block_table_append, K3Append)                \
  ENTRY(k3_block_table_gather, K3Gather)                \
  ENTRY(k3_slot_mapping, K3SlotMapping)                 \
  ENTRY(k3_sequence_starts, K3SequenceStarts)           \
  ENTRY(k3_positions, K3Positions)                      \
  ENTRY(k3_decode_prefill_split, K3Split)               \
  ENTRY(k3_chunk_indices, K3ChunkIndices)               \
  ENTRY(k3_kda_state_indices, K3StateIndices)           \
  ENTRY(k3_kv_cache_write, K3CacheWrite)                \
  ENTRY(k3_mla_cache_write, K3MlaWrite)                 \
  ENTRY(k3_gqa_read_bf16, K3Read)                       \
  ENTRY(k3_gqa_read_fp8, K3Read)                        \
  ENTRY(k3_mla_read_bf16, K3Read)                       \
  ENTRY(k3_mla_read_fp8, K3Read)                        \
  ENTRY(k3_read_combine, K3Combine)                     \
  ENTRY(k3_state_update, K3StateUpdate)                 \
  ENTRY(k3_stream_write, K3StreamWrite)
