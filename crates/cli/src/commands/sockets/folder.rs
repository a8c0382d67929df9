//! Folder of the journals.

use anyhow::{Result, anyhow};
use spangap_sockets::Folder;
use std::path::PathBuf;

/// The requested folder, else that of root or of the user's session.
pub fn of(asked: Option<PathBuf>) -> Result<Folder> {
    if let Some(path) = asked {
        return Ok(Folder::new(path));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(Folder::new("/run/spangap/sockets"));
    }
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let session = session.ok_or_else(|| {
        anyhow!("no place for the journal that undoes a change: XDG_RUNTIME_DIR is not set; --journal DIR names one")
    })?;
    Ok(Folder::new(session.join("spangap/sockets")))
}
