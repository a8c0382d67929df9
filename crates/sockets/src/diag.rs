//! sock_diag: `TCP_INFO` of every socket in our own network namespace, available to any user. It does not
//! include TCP_NODELAY.

use crate::tcp_info::{self, TcpInfo};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::collections::HashMap;

/// Information about one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagInfo {
    pub info: TcpInfo,
    pub congestion_control: Option<String>,
}

/// SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE of the kernel's headers.
const BY_FAMILY: u16 = 20;
const DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// INET_DIAG_INFO and INET_DIAG_CONG.
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const HEADER: usize = 16;
/// `struct inet_diag_req_v2` and `struct inet_diag_msg`, and the inode in the latter.
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
const INODE: usize = 68;
/// Maximum size of a kernel response.
const ROOM: usize = 256 << 10;

/// All sockets by inode.
pub fn dump() -> Result<HashMap<u64, DiagInfo>, Errno> {
    let mut told = HashMap::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&socket, &request(family.as_raw() as u8), SendFlags::empty(), &kernel)?;
        let mut room = vec![0; ROOM];
        loop {
            let (length, _) = recv(&socket, room.as_mut_slice(), RecvFlags::empty())?;
            if length == 0 || !read(room.get(..length).unwrap_or_default(), &mut told)? {
                break;
            }
        }
    }
    Ok(told)
}

fn request(family: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    let wanted = 1 << (INFO - 1) | 1 << (CONGESTION - 1);
    bytes.extend([family, libc::IPPROTO_TCP as u8, wanted, 0]);
    // All states.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.resize(HEADER + REQUEST, 0);
    bytes
}

/// Parses one response; false for the last one.
fn read(mut bytes: &[u8], told: &mut HashMap<u64, DiagInfo>) -> Result<bool, Errno> {
    while let Some(length) = four(bytes, 0) {
        let length = length as usize;
        let Some(message) = bytes.get(HEADER..length) else { return Err(Errno::BADMSG) };
        match two(bytes, 4) {
            Some(DONE) => return Ok(false),
            Some(ERROR) => {
                let code = four(message, 0).map_or(0, |code| (code as i32).wrapping_neg());
                return Err(Errno::from_raw_os_error(code.clamp(1, 4095)));
            }
            Some(BY_FAMILY) => one(message, told),
            _ => {}
        }
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    Ok(true)
}

fn one(message: &[u8], told: &mut HashMap<u64, DiagInfo>) {
    let Some(inode) = four(message, INODE).filter(|inode| *inode != 0) else { return };
    let mut attributes = message.get(MESSAGE..).unwrap_or_default();
    let mut found = DiagInfo { info: TcpInfo::default(), congestion_control: None };
    while let (Some(length), Some(kind)) = (two(attributes, 0), two(attributes, 2)) {
        let length = usize::from(length);
        let Some(value) = attributes.get(4..length) else { return };
        match kind {
            INFO => found.info = tcp_info::decode(value),
            CONGESTION => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                found.congestion_control = Some(String::from_utf8_lossy(name).into_owned());
            }
            _ => {}
        }
        attributes = attributes.get(aligned(length)..).unwrap_or_default();
    }
    told.insert(inode.into(), found);
}

fn aligned(length: usize) -> usize {
    length.max(1).next_multiple_of(4)
}

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn sock_diag_agrees_with_descriptors() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("not run: no IPv6 here");
                return;
            };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let inode = rustix::fs::fstat(&stream).unwrap().st_ino;
            let direct = tcp_info::of(&stream).unwrap();
            let told = dump().unwrap().remove(&inode).expect("it is told of");
            // Times since an event advance between two dumps; everything else about an idle connection stays.
            let still = |info: TcpInfo| TcpInfo {
                last_sent_ns: None,
                last_received_ns: None,
                last_ack_received_ns: None,
                ..info
            };
            assert_eq!(still(told.info), still(direct));
            assert_eq!(told.congestion_control, rustix::net::sockopt::tcp_congestion(&stream).ok());
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&bytes, &mut HashMap::new());
        }

        #[test]
        fn no_message_panics(body in prop::collection::vec(0u8..40, 0..300)) {
            let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend(BY_FAMILY.to_ne_bytes());
            bytes.resize(HEADER, 0);
            bytes.extend(body);
            let _ = read(&bytes, &mut HashMap::new());
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        let mut bytes = 20u32.to_ne_bytes().to_vec();
        bytes.extend(ERROR.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend((-13i32).to_ne_bytes());
        assert_eq!(read(&bytes, &mut HashMap::new()), Err(Errno::ACCESS));
    }
}
