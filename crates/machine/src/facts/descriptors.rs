//! `/proc/PID/fd`: what the descriptors of a process stand for.

/// Its name in the folder of a process.
pub const FOLDER: &str = "fd";

/// The inode of a socket, from where the link of its descriptor points: `socket:[4711]`. `None`: it is no socket.
pub fn socket_inode(link: &str) -> Option<u64> {
    let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    super::figures::count(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_among_links() {
        assert_eq!(socket_inode("socket:[4711]"), Some(4711));
        for other in [
            "pipe:[4711]",
            "/dev/null",
            "socket:[]",
            "socket:[x]",
            "socket:[1] (deleted)",
            "anon_inode:[eventpoll]",
        ] {
            assert_eq!(socket_inode(other), None, "{other}");
        }
    }
}
