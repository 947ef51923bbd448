//! What do the block tables of all groups hold after an append, and after a gather?

/// Where each group's table lies in the one buffer.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// The first id of each group's table.
    pub table_offsets: &'a [i64],
    /// Ids a row, by group.
    pub strides: &'a [i64],
    /// Rows of every table.
    pub max_num_reqs: usize,
}

impl Layout<'_> {
    /// The place of a row's first id.
    pub fn row(&self, group: usize, row: usize) -> usize {
        index(self.table_offsets[group]) + row * self.stride(group)
    }

    /// Ids a row.
    pub fn stride(&self, group: usize) -> usize {
        index(self.strides[group])
    }
}

pub(crate) fn index(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Block ids to write at a row's column.
#[derive(Debug, Clone)]
pub struct Write {
    /// The KV cache group.
    pub group: i32,
    /// The request's row.
    pub row: i32,
    /// The first column.
    pub start: i32,
    /// The ids.
    pub ids: Vec<i32>,
}

/// Appends; a write that does not fit its table is left out.
pub fn append(writes: &[Write], layout: Layout<'_>, tables: &mut [i32], num_blocks: &mut [i32]) {
    for write in writes {
        let (Ok(group), Ok(row), Ok(start)) =
            (usize::try_from(write.group), usize::try_from(write.row), usize::try_from(write.start))
        else {
            continue;
        };
        if group >= layout.strides.len() || row >= layout.max_num_reqs {
            continue;
        }
        let end = start + write.ids.len();
        if end > layout.stride(group) {
            continue;
        }
        let first = layout.row(group, row) + start;
        tables[first..first + write.ids.len()].copy_from_slice(&write.ids);
        num_blocks[group * layout.max_num_reqs + row] = i32::try_from(end).unwrap_or(i32::MAX);
    }
}

/// Gathers the rows of a batch; rows of padding and of dummies (-1) become zero.
pub fn gather(
    idx_mapping: &[i32],
    num_reqs_padded: usize,
    layout: Layout<'_>,
    tables: &[i32],
    num_blocks: &[i32],
    input_tables: &mut [i32],
) {
    for group in 0..layout.strides.len() {
        for batch in 0..num_reqs_padded {
            let stride = layout.stride(group);
            let to = layout.row(group, batch);
            let row = idx_mapping.get(batch).and_then(|row| usize::try_from(*row).ok());
            match row.filter(|row| *row < layout.max_num_reqs) {
                Some(row) => {
                    let len = index(i64::from(num_blocks[group * layout.max_num_reqs + row])).min(stride);
                    let from = layout.row(group, row);
                    input_tables[to..to + len].copy_from_slice(&tables[from..from + len]);
                }
                None => input_tables[to..to + stride].fill(0),
            }
        }
    }
}
