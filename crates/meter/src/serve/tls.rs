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

/// How often the files are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that lead to its authority, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Authorities of the certificates of clients, PEM; `None`: clients are not asked for one.
    pub client_authorities: Option<PathBuf>,
}

/// Why certificates cannot be used. No key is in any message.
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
    /// A file has something else in it.
    #[error("{}: expected {expected} in PEM: {reason}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should have.
        expected: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The certificate and the key do not go together, or cannot be used.
    #[error("{} and {}: {reason}", certificate.display(), key.display())]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// What tells that a file was replaced: time, length, inode.
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

/// Marks a request over a connection whose client has shown a certificate of an authority that is known.
#[derive(Clone, Copy, Debug)]
pub struct Certified;

/// What came of a handshake.
pub(super) enum HandshakeOutcome {
    /// The stream within, and whether the client has shown a certificate.
    Done(Box<TlsStream<TcpStream>>, bool),
    /// It is over: the peer spoke something else, or did not agree.
    Failed,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn open(files: TlsFiles) -> Result<Arc<Tls>, TlsError> {
        // Before the files are read: what is replaced meanwhile is read again.
        let stamp = files.stamp();
        let current = RwLock::new((Arc::new(files.config()?), stamp));
        Ok(Arc::new(Tls { files, current }))
    }

    /// Whether clients are asked for certificates.
    pub fn asks_for_certificates(&self) -> bool {
        self.files.client_authorities.is_some()
    }

    /// Reads the files again if they have changed. Connections that are open go on with what they began with, and so do new
    /// ones when the files cannot be used.
    ///
    /// # Errors
    /// When what is there now cannot be used; said once for each change.
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

    /// Looks at the files for ever.
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

    /// Agrees with a client that has just connected. How long that may take is the caller's affair.
    pub(super) async fn shake(&self, mut stream: TcpStream) -> HandshakeOutcome {
        let mut first = [0];
        // A record of TLS with a handshake begins with 22; browsers and programs that were told `http://` learn why they fail.
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
                // Browsers and SDKs come to the same ports without one; agents must have one.
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
