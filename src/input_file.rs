//! How is a file opened that somebody names, and how much of it is read?
//!
//! Every file that the command reads goes through here: what has no end, or more than can be held, is an error.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest file of settings, of keys or of certificates, bytes.
pub(crate) const SETTINGS: u64 = 16 << 20;
/// The largest file of many requests, points or cases, bytes.
pub(crate) const DATA: u64 = 1 << 30;

/// Opens a file that has an end: a regular one, or a pipe that a shell has opened already, as `<(COMMAND)` is.
///
/// # Errors
/// If it cannot be opened, or is a device, a socket, or a pipe that may never be written to.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    let is_open =
        path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd") || path == Path::new("/dev/stdin");
    let opened_pipe = is_open && std::os::unix::fs::FileTypeExt::is_fifo(&kind);
    if kind.is_file() || kind.is_dir() || opened_pipe {
        return File::open(path);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is no regular file, but a pipe or a device, which may have no end; write it to a file first",
    ))
}

/// The bytes of a file of at most `most`.
///
/// # Errors
/// As [`open`], or if it is larger.
pub(crate) fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    let room = file.metadata()?.len().min(most.saturating_add(1));
    bytes.try_reserve_exact(usize::try_from(room).unwrap_or(usize::MAX))?;
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large(most));
    }
    Ok(bytes)
}

/// The text of a file of at most `most` bytes.
///
/// # Errors
/// As [`bytes`], or if it is no UTF-8.
pub(crate) fn text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to() + 1;
        io::Error::new(io::ErrorKind::InvalidData, format!("byte {at} of it is not valid UTF-8"))
    })
}

/// Holds a file that another library opens to what [`bytes`] would read.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn hold_to(path: &Path, most: u64) -> io::Result<()> {
    let found = open(path)?.metadata()?;
    if found.is_file() && found.len() > most { Err(too_large(most)) } else { Ok(()) }
}

/// The path that is the same however a file is named; a pipe has none.
pub(crate) fn one_name(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_no_name| path.to_owned())
}

fn too_large(most: u64) -> io::Error {
    let size = if most >= 1 << 20 { format!("{} MiB", most >> 20) } else { format!("{most} bytes") };
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {size}"))
}
