//! The list of interrupts that a running irqbalance leaves alone, read and set through its socket.
//!
//! Its protocol (1.3 and later, documented in its manual): one connection per request, of at most one packet,
//! with root's credentials. The response to `setup` is `SLEEP 10 IRQ 41 LOAD 0 DIFF 0 CLASS 5 ... BANNED
//! 00000000`; `settings ban irqs 41 42` replaces the whole list, `NONE` empties it, and neither gets a
//! response. In a copy, the file `/irqbalance/setup` holds that response.

use super::files::{Root, is_absent};
use super::processes;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, UCred, connect, recv, sendmsg, socket,
};
use rustix::process::{getgid, getpid, getuid};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Maximum number of bytes of a request that it reads (1.9); newer versions read only 255 bytes of the numbers.
/// The rest is silently truncated.
const MOST_BYTES: usize = 500 - BAN.len();
/// Longer than it ever takes between two looks at its socket.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const COPY: &str = "/irqbalance/setup";
const BAN: &str = "settings ban irqs ";

/// The interrupts, in order; `None` if it does not run.
pub fn banned(root: &Root) -> io::Result<Option<Vec<u32>>> {
    if root.is_copy() {
        return Ok(root.read(COPY)?.map(|text| setup::banned(&text)));
    }
    let Some(pid) = pid(root)? else { return Ok(None) };
    let answer = request(root, pid, "setup", true)?;
    if !answer.starts_with("SLEEP ") {
        return Err(io::Error::other(format!(
            "irqbalance answers {answer:?}, expected SLEEP ... BANNED ..."
        )));
    }
    Ok(Some(setup::banned(&answer)))
}

/// Makes it leave exactly these interrupts alone.
pub fn ban(root: &Root, irqs: &[u32]) -> io::Result<()> {
    if root.is_copy() {
        let text = root.read(COPY)?.ok_or(io::ErrorKind::NotFound)?;
        return root.write(COPY, &setup::with_banned(&text, irqs));
    }
    let pid =
        pid(root)?.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "irqbalance is not running"))?;
    let list = if irqs.is_empty() { "NONE".to_owned() } else { words(irqs) };
    // It takes a zero after the first number for the end of the list.
    if irqs.contains(&0) || list.len() > MOST_BYTES {
        let said = format!(
            "irqbalance takes at most {MOST_BYTES} bytes of numbers other than 0, and these {} have {}: \
             plan with --irqbalance stop",
            irqs.len(),
            list.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    request(root, pid, &format!("{BAN}{list}"), false)?;
    let kept = banned(root)?.unwrap_or_default();
    if kept == irqs {
        return Ok(());
    }
    let lost = irqs.iter().filter(|irq| !kept.contains(irq)).count();
    let said =
        format!("irqbalance did not take {lost} of {} numbers: plan with --irqbalance stop", irqs.len());
    Err(io::Error::other(said))
}

/// Numbers separated by blanks.
pub fn words(irqs: &[u32]) -> String {
    irqs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Parses the output of [`words`], in any order.
pub fn parse_words(text: &str) -> Option<Vec<u32>> {
    let irqs: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
    irqs.ok().map(in_order)
}

fn in_order(mut irqs: Vec<u32>) -> Vec<u32> {
    irqs.sort_unstable();
    irqs.dedup();
    irqs
}

fn pid(root: &Root) -> io::Result<Option<u32>> {
    Ok(processes::named(root, "irqbalance")?.first().copied())
}

/// Sends one request, and reads the response if one is expected.
fn request(root: &Root, pid: u32, text: &str, answered: bool) -> io::Result<String> {
    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN))?;
    set_socket_timeout(&socket, Timeout::Send, Some(ANSWER_WITHIN))?;
    connect_to(root, &socket, pid)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let own = UCred { pid: getpid(), uid: getuid(), gid: getgid() };
    control.push(SendAncillaryMessage::ScmCredentials(own));
    // It reads only once: a request in pieces would be cut to its first piece.
    sendmsg(&socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    // It closes the connection when it is done with the request.
    loop {
        match recv(&socket, &mut piece, RecvFlags::empty()) {
            Ok((0, _)) => break,
            Ok((len, _)) => answer.extend_from_slice(&piece[..len]),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let said = format!("irqbalance (process {pid}) did not answer within {ANSWER_WITHIN:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, said));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if answered && answer.is_empty() {
        let said = format!("irqbalance (process {pid}) refuses to answer: it talks to root only");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Its socket is a file if it could create one, or else has an abstract name. Both contain its process id as it
/// sees it.
fn connect_to(root: &Root, socket: &impl rustix::fd::AsFd, pid: u32) -> io::Result<()> {
    let inner = processes::status(root, pid, "NSpid")?;
    let inner =
        inner.as_deref().and_then(|ids| ids.split_whitespace().last()).map_or(pid.to_string(), str::to_owned);
    let file = format!("irqbalance{inner}.sock");
    for folder in ["/run/irqbalance", "/var/run/irqbalance"] {
        let address = SocketAddrUnix::new(format!("/proc/{pid}/root{folder}/{file}"))?;
        match connect(socket, &address) {
            Ok(()) => return Ok(()),
            Err(errno) if is_absent(&errno.into()) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // Older versions pass more bytes than the name has: as listed by the kernel, with `@` for each zero.
    let listed = root.read("/proc/net/unix")?.unwrap_or_default();
    let mut names = listed.lines().filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
    let name = names.find(|name| name.trim_end_matches('@') == file);
    let bytes: Vec<u8> =
        name.unwrap_or(&file).bytes().map(|byte| if byte == b'@' { 0 } else { byte }).collect();
    connect(socket, &SocketAddrUnix::new_abstract_name(&bytes)?).map_err(|errno| {
        let said = format!("irqbalance (process {pid}) has no socket for questions: {errno}");
        io::Error::new(io::ErrorKind::NotFound, said)
    })
}

/// The response to `setup`.
mod setup {
    use super::in_order;

    pub fn banned(text: &str) -> Vec<u32> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let irqs = words.windows(2).filter(|pair| pair[0] == "IRQ").filter_map(|pair| pair[1].parse().ok());
        in_order(irqs.collect())
    }

    /// The same response with other interrupts; the details of those that stay are kept.
    pub fn with_banned(text: &str, irqs: &[u32]) -> String {
        let (head, rest) =
            text.split_at(text.find("IRQ ").or_else(|| text.find("BANNED ")).unwrap_or(text.len()));
        let (old, tail) = rest.split_at(rest.find("BANNED ").unwrap_or(rest.len()));
        let entry = |irq: &u32| {
            let mut entries = old.split("IRQ ").filter(|entry| !entry.is_empty());
            let known = entries.find(|entry| entry.split_whitespace().next() == Some(&irq.to_string()));
            known.map_or(format!("IRQ {irq} LOAD 0 DIFF 0 CLASS 0 "), |known| format!("IRQ {known}"))
        };
        let entries: String = irqs.iter().map(entry).collect();
        format!("{head}{entries}{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANSWER: &str =
        "SLEEP 10 IRQ 30 LOAD 7 DIFF 2 CLASS 5 IRQ 41 LOAD 0 DIFF 0 CLASS 4 BANNED 00000000,00000003";

    #[test]
    fn setup_response_is_read_and_written_in_a_copy() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::copy(folder.path());
        assert_eq!(banned(&root).expect("that is no error"), None);
        assert!(ban(&root, &[1]).is_err(), "there is none");
        std::fs::create_dir(folder.path().join("irqbalance")).expect("it is ours");
        let path = folder.path().join("irqbalance/setup");
        std::fs::write(&path, format!("{ANSWER}\n")).expect("it is ours");
        assert_eq!(banned(&root).expect("it is there"), Some(vec![30, 41]));
        ban(&root, &[30, 41, 146]).expect("it is there");
        assert_eq!(banned(&root).expect("it is there"), Some(vec![30, 41, 146]));
        ban(&root, &[30, 41]).expect("it is there");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), format!("{ANSWER}\n"));
        ban(&root, &[]).expect("it is there");
        assert_eq!(
            root.read(COPY).expect("it is there").as_deref(),
            Some("SLEEP 10 BANNED 00000000,00000003")
        );
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(irqs in prop::collection::btree_set(0_u32..9999, 0..40), before in "SLEEP [0-9]{1,3} (IRQ [0-9]{1,4} LOAD 0 DIFF 0 CLASS 0 ){0,3}BANNED [0-9a-f,]{1,20}") {
            let irqs: Vec<u32> = irqs.into_iter().collect();
            prop_assert_eq!(parse_words(&words(&irqs)), Some(irqs.clone()));
            let text = setup::with_banned(&before, &irqs);
            prop_assert_eq!(setup::banned(&text), irqs);
            let back = setup::with_banned(&text, &setup::banned(&before));
            prop_assert_eq!(setup::banned(&back), setup::banned(&before));
            prop_assert_eq!(back.split("BANNED").nth(1), before.split("BANNED").nth(1));
        }

        #[test]
        fn no_text_panics(text in "\\PC*|(SLEEP |IRQ |BANNED |[0-9]{1,12} ){0,8}") {
            let _ = (setup::banned(&text), setup::with_banned(&text, &[1]), parse_words(&text));
        }
    }
}
