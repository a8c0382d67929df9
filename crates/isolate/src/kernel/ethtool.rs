//! Number of combined queues of an interface, through the ioctls behind `ethtool -l` and `-L`.
//!
//! In a copy, the file `/ethtool/IF` holds the output of `ethtool -l IF`.

use super::files::Root;
use crate::topology::Queues;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use std::io;

/// Gets the numbers of queues.
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Sets them.
const ETHTOOL_SCHANNELS: u32 = 0x3d;

/// `struct ethtool_channels` of `linux/ethtool.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// Current and maximum number; `None` if the interface does not exist, or has or reports no combined queues.
pub fn queues(root: &Root, interface: &str) -> io::Result<Option<Queues>> {
    if root.is_copy() {
        let text = root.read(&path(interface))?;
        return Ok(text.as_deref().and_then(printed::queues));
    }
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    match ask(interface, &mut channels) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NODEV) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let queues = Queues { now: channels.combined_count, most: channels.max_combined };
    Ok((queues.most > 0).then_some(queues))
}

/// Sets the number of combined queues; the other kinds stay unchanged.
pub fn set_queues(root: &Root, interface: &str, combined: u32) -> io::Result<()> {
    if root.is_copy() {
        let text = root.read(&path(interface))?.unwrap_or_default();
        let new = printed::with_combined(&text, combined).ok_or(Errno::OPNOTSUPP)?;
        return root.write(&path(interface), &new);
    }
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    ask(interface, &mut channels)?;
    if channels.combined_count == combined {
        return Ok(());
    }
    channels.cmd = ETHTOOL_SCHANNELS;
    channels.combined_count = combined;
    Ok(ask(interface, &mut channels)?)
}

fn path(interface: &str) -> String {
    format!("/ethtool/{interface}")
}

fn ask(interface: &str, channels: &mut Channels) -> Result<(), Errno> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    ioctl(&socket, interface, channels)
}

#[allow(unsafe_code)]
fn ioctl(socket: &OwnedFd, interface: &str, channels: &mut Channels) -> Result<(), Errno> {
    // SAFETY: `ifreq` is plain old data: integers, arrays and one pointer, for all of which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.as_bytes();
    // The last byte stays zero and terminates the name.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
        return Err(Errno::NODEV);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(channels).cast();
    // SAFETY: the descriptor is open, and the request outlives the call. `ifr_data` points to a `Channels`, which has the
    // layout that the kernel reads and writes for both commands that it can hold, and is borrowed for us alone.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if answer == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Output of `ethtool -l`: maximum values first, then current ones.
mod printed {
    use super::Queues;

    const MOST: &str = "Pre-set maximums";
    const NOW: &str = "Current hardware settings";

    /// The `Combined:` lines with their position and number, by the heading above them.
    fn combined(text: &str, heading: &str) -> Option<(usize, u32)> {
        let mut lines = text.lines().enumerate();
        lines.find(|(_, line)| line.starts_with(heading))?;
        let of_it = lines.take_while(|(_, line)| !line.starts_with(NOW));
        of_it.filter_map(|(at, line)| Some((at, line.strip_prefix("Combined:")?.trim().parse().ok()?))).next()
    }

    pub fn queues(text: &str) -> Option<Queues> {
        let queues = Queues { now: combined(text, NOW)?.1, most: combined(text, MOST)?.1 };
        (queues.most > 0).then_some(queues)
    }

    /// The same output with another number; `None` if it has no such line, or the number is out of range.
    pub fn with_combined(text: &str, number: u32) -> Option<String> {
        let (at, _) = combined(text, NOW)?;
        let fits = (1..=queues(text)?.most).contains(&number);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = lines.get_mut(at)?;
        let digits = line.rfind(|c: char| !c.is_ascii_digit())? + 1;
        line.replace_range(digits.., &number.to_string());
        fits.then(|| lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRINTED: &str = "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\n\
        Combined:\t63\nCurrent hardware settings:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t8\n";

    fn copy(text: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("ethtool")).expect("it is ours");
        std::fs::write(folder.path().join("ethtool/eth0"), text).expect("it is ours");
        let root = Root::copy(folder.path());
        (folder, root)
    }

    #[test]
    fn edits_of_a_copy_keep_other_lines() {
        let (folder, root) = copy(PRINTED);
        let text = || std::fs::read_to_string(folder.path().join("ethtool/eth0")).expect("it is there");
        assert_eq!(queues(&root, "eth0").expect("it is there"), Some(Queues { now: 8, most: 63 }));
        set_queues(&root, "eth0", 12).expect("it can");
        assert_eq!(text(), PRINTED.replace("Combined:\t8", "Combined:\t12"));
        assert!(set_queues(&root, "eth0", 64).is_err());
        assert!(set_queues(&root, "eth0", 0).is_err());
        set_queues(&root, "eth0", 8).expect("it can");
        assert_eq!(text(), PRINTED);
        assert_eq!(queues(&root, "eth1").expect("that is no error"), None);
        assert!(set_queues(&root, "eth1", 1).is_err());
    }

    #[test]
    fn an_interface_without_such_queues_has_none() {
        let (_folder, root) = copy(&PRINTED.replace("63", "n/a").replace('8', "n/a"));
        assert_eq!(queues(&root, "eth0").expect("it is there"), None);
        let live = Root::machine();
        assert_eq!(queues(&live, "lo").expect("it is there"), None);
        assert_eq!(queues(&live, "no-such-if").expect("that is no error"), None);
        assert_eq!(queues(&live, "a-name-that-is-far-too-long").expect("that is no error"), None);
        let error = set_queues(&live, "no-such-if", 2).expect_err("there is none");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NODEV));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Pre-set maximums:\n)?(Combined:[ \t]?[0-9n/a]{0,12}\n)?(Current hardware settings:\n)?(Combined:\\PC{0,6}\n)?", number: u32) {
            let _ = (printed::queues(&text), printed::with_combined(&text, number));
        }
    }
}
