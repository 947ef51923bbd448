//! Where does what is written go, and may it be put in the place of what is there?

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Whether a path is a device or a pipe, such as `/dev/stdout`: it is written to, and never replaced by a file.
pub(crate) fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Makes a folder for results, and those that it lies in, where they are not there.
///
/// # Errors
/// If the disk refuses.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::new(format!("failed to make the folder `{}`", folder.display())).caused_by(error)
    })
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
