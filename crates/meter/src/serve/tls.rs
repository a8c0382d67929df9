//! TLS on the ports: certificates from files, reloaded when the files change, and client certificates.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Interval between checks of the files.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Paths of the certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Authorities of client certificates, PEM; `None` if clients are not asked for one.
    pub client_authorities: Option<PathBuf>,
}

/// Why certificates cannot be used. No message contains a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The content of a file is not as expected.
    #[error("{}: expected {expected} in PEM: {reason}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Expected content.
        expected: &'static str,
        /// The error.
        reason: String,
    },
    /// The certificate and the key do not match, or cannot be used.
    #[error("{} and {}: {reason}", certificate.display(), key.display())]
    Unusable {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// The error.
        reason: String,
    },
}

/// Detects a replaced file: time, length, inode.
type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

/// The certificates in use.
pub struct Tls {
    files: TlsFiles,
    current: RwLock<(Arc<ServerConfig>, Stamp)>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Marks a request on a connection whose client presented a certificate of a known authority.
#[derive(Clone, Copy, Debug)]
pub struct Certified;

/// Result of a handshake.
pub(super) enum HandshakeOutcome {
    /// The decrypted stream, and whether the client presented a certificate.
    Done(Box<TlsStream<TcpStream>>, bool),
    /// Failed: the peer spoke another protocol, or rejected the parameters.
    Failed,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn open(files: TlsFiles) -> Result<Arc<Tls>, TlsError> {
        // Taken before the files are read, so that files replaced during the reading are read again.
        let stamp = files.stamp();
        let current = RwLock::new((Arc::new(files.config()?), stamp));
        Ok(Arc::new(Tls { files, current }))
    }

    /// Reloads the files if they have changed. Open connections keep their certificates, and so do new ones
    /// if the files cannot be used.
    ///
    /// # Errors
    /// When the new files cannot be used; reported once per change.
    pub fn look(&self) -> Result<bool, TlsError> {
        let stamp = self.files.stamp();
        if self.current.read().unwrap_or_else(PoisonError::into_inner).1 == stamp {
            return Ok(false);
        }
        let config = self.files.config();
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.1 = stamp;
        current.0 = Arc::new(config?);
        Ok(true)
    }

    /// Checks the files periodically, for ever.
    pub(super) async fn keep_fresh(self: Arc<Self>, tell: fn(&dyn std::fmt::Display)) {
        let mut interval = tokio::time::interval(LOOK_EVERY);
        loop {
            interval.tick().await;
            match self.look() {
                Ok(false) => {}
                Ok(true) => tell(&"TLS: the certificates have changed; using the new ones"),
                Err(error) => tell(&format_args!("TLS: {error}; still using the previous certificates")),
            }
        }
    }

    /// Performs the handshake with a new client. The caller limits its duration.
    pub(super) async fn shake(&self, mut stream: TcpStream) -> HandshakeOutcome {
        let mut first = [0];
        // A TLS record with a handshake begins with 22; clients that use `http://` get an explanation.
        match stream.peek(&mut first).await {
            Ok(1) if first[0] == 22 => {}
            Ok(1) => {
                let _ = stream.write_all(NOT_TLS).await;
                let _ = stream.shutdown().await;
                return HandshakeOutcome::Failed;
            }
            _ => return HandshakeOutcome::Failed,
        }
        let config = self.current.read().unwrap_or_else(PoisonError::into_inner).0.clone();
        match TlsAcceptor::from(config).accept(stream).await {
            Ok(stream) => {
                let certified = stream.get_ref().1.peer_certificates().is_some();
                HandshakeOutcome::Done(Box::new(stream), certified)
            }
            Err(_) => HandshakeOutcome::Failed,
        }
    }
}

const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 42\r\nconnection: close\r\n\r\n\
    This port speaks TLS: ask it by https://.\n";

impl TlsFiles {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_authorities)
    }

    fn stamp(&self) -> Stamp {
        use std::os::unix::fs::MetadataExt;
        let stamp = |path: &PathBuf| {
            let meta = fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len(), meta.ino()))
        };
        self.paths().map(stamp).collect()
    }

    fn config(&self) -> Result<ServerConfig, TlsError> {
        let certificates = certificates(&self.certificate)?;
        let key = read(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|error| not_pem(&self.key, "a private key", &error))?;
        let unusable = |reason: &dyn std::fmt::Display| TlsError::Unusable {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            reason: reason.to_string(),
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in self::certificates(path)? {
                    roots.add(certificate).map_err(|error| TlsError::Pem {
                        path: path.clone(),
                        expected: "certificates of authorities",
                        reason: error.to_string(),
                    })?;
                }
                // Browsers and SDKs use the same ports without one; agents must have one.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| unusable(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(certificates, key).map_err(|error| unusable(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|reason| TlsError::Read { path: path.to_owned(), reason })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.and_then(|all| if all.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(all) });
    all.map_err(|error| not_pem(path, "certificates", &error))
}

fn not_pem(path: &Path, expected: &'static str, error: &pem::Error) -> TlsError {
    let reason = match error {
        pem::Error::NoItemsFound => "found none".to_owned(),
        pem::Error::Io(error) if error.kind() == ErrorKind::InvalidData => "it is not text".to_owned(),
        error => format!("{error:?}"),
    };
    TlsError::Pem { path: path.to_owned(), expected, reason }
}
