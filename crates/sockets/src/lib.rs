//! TCP connections of other processes, as shown by the kernel, and changes to their options that can be undone.
//! Works across network namespaces.
//!
//! [`list`] shows all TCP sockets of a process or a port; [`look`] is for a caller that sets up its own
//! connections.

mod borrow;
mod change;
mod diag;
mod error;
mod evidence;
mod hints;
mod holders;
mod journal;
pub mod keeper;
mod list;
mod look;
mod processes;
mod rates;
pub mod report;
mod socket;
mod tcp_info;

pub use change::{Change, ChangeOutcome, ChangeRequest, Plan, Undone, apply, undo};
pub use error::SocketsError;
pub use evidence::evidence;
pub use hints::{Hint, HintKind, PeerGroup, groups, hints};
pub use holders::{holders, network_namespace};
pub use journal::{Entry, Folder, Head, Holder, Journal, JournalError, LockedJournal, set_aside};
pub use list::{Asked, Listing, list};
pub use look::{Socket, look, set_nodelay};
pub use rates::{Rates, SocketRates, rates};
pub use socket::{Owner, PeerSocket, Source, TcpSocket};
pub use spangap_machine::facts::net_tcp::{Family, State, Timer};
pub use tcp_info::TcpInfo;
