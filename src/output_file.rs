//! May a file that is written be put in the place of what is there?

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// Whether a path is a device or a pipe, such as `/dev/stdout`: it is written to, and never replaced by a file.
pub(crate) fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Puts a whole file in its place, or its content into a device.
///
/// # Errors
/// If the disk refuses; what was there is then as it was.
pub(crate) fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    if is_special(path) {
        return io::copy(&mut file.reopen()?, &mut File::create(path)?).map(drop);
    }
    file.persist(path).map(drop).map_err(|error| error.error)
}
