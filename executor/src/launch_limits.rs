//! May a launch ask for this grid, and how should a read be cut to fill the device?

use thiserror::Error;

/// What a launch may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads of a block.
    pub threads: u32,
    /// Programs, by axis.
    pub grid: [u32; 3],
}

/// A launch asks for too much, or for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LimitError {
    /// More threads a block than there can be.
    #[error("{asked} threads a block, from 1 to {limit} possible")]
    Threads {
        /// Asked for.
        asked: u32,
        /// The most.
        limit: u32,
    },
    /// A grid that is empty or too wide.
    #[error("{asked} programs along axis {axis}, from 1 to {limit} possible")]
    Grid {
        /// 0, 1 or 2.
        axis: usize,
        /// Asked for.
        asked: u32,
        /// The most.
        limit: u32,
    },
}

impl Limits {
    /// Checks a launch.
    ///
    /// # Errors
    /// The first limit that is broken.
    pub fn check(&self, grid: [u32; 3], threads: u32) -> Result<(), LimitError> {
        if threads == 0 || threads > self.threads {
            return Err(LimitError::Threads { asked: threads, limit: self.threads });
        }
        for (axis, (asked, limit)) in grid.into_iter().zip(self.grid).enumerate() {
            if asked == 0 || asked > limit {
                return Err(LimitError::Grid { axis, asked, limit });
            }
        }
        Ok(())
    }
}

/// How a read of a batch is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadShape {
    /// Ranges of tokens a request.
    pub splits: u32,
    /// Teams of threads a block that take turns on the tokens of a split.
    pub workers: u32,
    /// Threads a block.
    pub threads: u32,
}

/// Cuts a read so that every unit has several programs, and no program less than 256 tokens.
///
/// `row_pieces` is the pieces of 16 bytes of a row: the threads of a worker. `block_threads` is 1 on a CPU.
pub fn read_shape(units: u32, num_reqs: u32, longest: u32, row_pieces: u32, block_threads: u32) -> ReadShape {
    let team = row_pieces.clamp(1, block_threads.max(1));
    let workers = (block_threads / team).max(1);
    let threads = team * workers;
    let wanted = units.saturating_mul(8).div_ceil(num_reqs.max(1));
    let most = longest.div_ceil(256 * workers);
    ReadShape { splits: wanted.min(most).max(1), workers, threads }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_the_axis() {
        let limits = Limits { threads: 1024, grid: [10, 20, 30] };
        assert_eq!(limits.check([10, 20, 30], 1024), Ok(()));
        assert_eq!(limits.check([1, 1, 1], 0), Err(LimitError::Threads { asked: 0, limit: 1024 }));
        assert_eq!(limits.check([1, 1, 1], 1025), Err(LimitError::Threads { asked: 1025, limit: 1024 }));
        assert_eq!(limits.check([1, 21, 1], 1), Err(LimitError::Grid { axis: 1, asked: 21, limit: 20 }));
        assert_eq!(limits.check([0, 1, 1], 1), Err(LimitError::Grid { axis: 0, asked: 0, limit: 10 }));
    }

    #[test]
    fn a_block_of_a_read_is_full_and_a_program_is_not_tiny() {
        // MLA fp8: 36 pieces of a row, so 7 workers of a block of 256.
        assert_eq!(read_shape(132, 8, 8192, 36, 256), ReadShape { splits: 5, workers: 7, threads: 252 });
        // A row longer than a block.
        assert_eq!(read_shape(2, 8, 8192, 512, 1), ReadShape { splits: 2, workers: 1, threads: 1 });
        assert_eq!(read_shape(2, 8, 0, 1, 1).splits, 1);
    }
}
