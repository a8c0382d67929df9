//! `/proc/PID/fd`: targets of a process's descriptors.

/// Folder name in a process's folder.
pub const FOLDER: &str = "fd";

/// Inode of a socket, from the target of its descriptor's link: `socket:[4711]`. `None` if it is not a socket.
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
