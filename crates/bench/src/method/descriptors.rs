//! Descriptors from files: a descriptor set written by `protoc`, or `.proto` sources.

use prost_reflect::{DescriptorError, DescriptorPool};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Source of a service's descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Descriptors {
    /// The server's reflection.
    Reflection,
    /// A `FileDescriptorSet`.
    Set(PathBuf),
    /// A source file and its import folders.
    Proto {
        /// The file.
        file: PathBuf,
        /// Import folders; empty for the file's own.
        folders: Vec<PathBuf>,
    },
}

/// Reason for a file not to yield descriptors.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorsError {
    /// Not readable.
    #[error("cannot read the descriptor set {path}")]
    Read {
        /// The file.
        path: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Not a descriptor set, or one without its imports.
    #[error(
        "{path} is not a complete descriptor set: expected what protoc --include_imports --descriptor_set_out={path} writes"
    )]
    Set {
        /// The file.
        path: String,
        /// Error of the decoder.
        source: DescriptorError,
    },
    /// Sources that do not compile.
    #[error("cannot compile {path}")]
    Proto {
        /// The file.
        path: String,
        /// Error of the compiler, with its place.
        source: protox::Error,
    },
}

impl Descriptors {
    /// All declarations of the files; `None` for reflection.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn pool(&self) -> Result<DescriptorPool, DescriptorsError> {
        match self {
            Descriptors::Reflection => Ok(DescriptorPool::new()),
            Descriptors::Set(file) => {
                let path = file.display().to_string();
                let bytes = std::fs::read(file);
                let bytes = bytes.map_err(|source| DescriptorsError::Read { path: path.clone(), source })?;
                DescriptorPool::decode(bytes.as_slice())
                    .map_err(|source| DescriptorsError::Set { path, source })
            }
            Descriptors::Proto { file, folders } => {
                let path = file.display().to_string();
                let proto = |source| DescriptorsError::Proto { path, source };
                let own = file.parent().filter(|folder| !folder.as_os_str().is_empty());
                let own = vec![own.map_or_else(|| PathBuf::from("."), PathBuf::from)];
                let folders = if folders.is_empty() { &own } else { folders };
                let mut compiler = match protox::Compiler::new(folders) {
                    Ok(compiler) => compiler,
                    Err(source) => return Err(proto(source)),
                };
                match compiler.include_imports(true).open_file(file) {
                    Ok(compiler) => Ok(compiler.descriptor_pool()),
                    Err(source) => Err(proto(source)),
                }
            }
        }
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Descriptors::Reflection => f.write_str("the server's reflection"),
            Descriptors::Set(file) | Descriptors::Proto { file, .. } => write!(f, "{}", file.display()),
        }
    }
}
