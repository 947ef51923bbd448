// All kernels, in one translation unit.
#include "shim.h"
#include "numbers.h"
#include "block_table.h"
#include "slot_mapping.h"
#include "metadata.h"
#include "kv_cache_write.h"
#include "paged_read.h"
#include "probe.h"
