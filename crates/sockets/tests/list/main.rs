//! Listed sockets, compared with what the processes themselves and `ss` report.

mod program;

use program::Program;
use spangap_sockets::{Asked, Family, SocketsError, Source, State, TcpSocket, list};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;

fn of_pid(pid: u32) -> Asked {
    Asked { pids: vec![pid], ..Asked::default() }
}

/// What `ss` reports about each socket of a port, by inode: its words, `name:value`.
fn ss(port: u16) -> Option<BTreeMap<u64, Vec<String>>> {
    let filter = format!("( sport = :{port} or dport = :{port} )");
    let said = Command::new("ss").args(["-tinpeOaH", &filter]).output();
    let said = match said {
        Ok(said) if said.status.success() => String::from_utf8(said.stdout).unwrap(),
        other => {
            println!("not run: ss: {other:?}");
            return None;
        }
    };
    let line = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let inode = words.iter().find_map(|word| word.strip_prefix("ino:")?.parse().ok())?;
        Some((inode, words))
    };
    Some(said.lines().filter_map(line).collect())
}

/// Value of a word; `ss` omits zeros.
fn word(words: &[String], name: &str) -> Option<f64> {
    let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.split(['/', ',']).next().unwrap().parse().unwrap())
}

fn assert_as_ss_says(socket: &TcpSocket, words: &[String]) {
    let info = &socket.info;
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let plain = |value: Option<u64>| value.map(|value| value as f64);
    for (name, ours) in [
        ("rtt", ms(info.rtt_ns)),
        ("minrtt", ms(info.min_rtt_ns)),
        ("rto", ms(info.rto_ns)),
        ("ato", ms(info.ato_ns)),
        ("mss", plain(info.send_mss_bytes)),
        ("pmtu", plain(info.path_mtu_bytes)),
        ("cwnd", plain(info.cwnd_segments)),
        ("unacked", plain(info.unacked_segments)),
        ("notsent", plain(info.notsent_bytes)),
        ("bytes_sent", plain(info.sent_bytes)),
        ("bytes_acked", plain(info.acked_bytes)),
        ("bytes_received", plain(info.received_bytes)),
        ("segs_out", plain(info.sent_segments)),
        ("segs_in", plain(info.received_segments)),
        ("data_segs_out", plain(info.sent_data_segments)),
        ("data_segs_in", plain(info.received_data_segments)),
        ("rcv_space", plain(info.receive_space_bytes)),
        ("snd_wnd", plain(info.send_window_bytes)),
        ("delivered", plain(info.delivered_segments)),
    ] {
        let theirs = word(words, name);
        assert_eq!(ours.unwrap_or(0.0), theirs.unwrap_or(0.0), "{name} of {socket:#?}\n{words:?}");
    }
    // Received but not read, written but not acknowledged.
    assert_eq!(socket.receive_queue_bytes.unwrap().to_string(), words[1], "{socket:#?}\n{words:?}");
    assert_eq!(socket.send_queue_bytes.unwrap().to_string(), words[2], "{socket:#?}\n{words:?}");
    assert_eq!(socket.state.name(), words[0]);
    let owner = &socket.owners[0];
    let user = format!("pid={},fd={})", owner.pid, owner.fds[0]);
    assert!(words.iter().any(|word| word.contains(&user)), "{user}: {words:?}");
    let congestion = socket.congestion_control.as_ref().unwrap();
    assert!(words.contains(congestion), "{congestion}: {words:?}");
}

#[test]
fn idle_connections_match_ss_in_every_family() {
    for (listen, connect, families) in [
        ("127.0.0.1", "127.0.0.1", [Family::Ipv4, Family::Ipv4]),
        ("::1", "::1", [Family::Ipv6, Family::Ipv6]),
        ("::", "127.0.0.1", [Family::Ipv4, Family::Ipv4Mapped]),
    ] {
        let Some(mut program) = Program::start(&[]) else { return };
        if listen.contains(':')
            && program.say("socket.create_server(('::1', 0), family=socket.AF_INET6)").contains("Error")
        {
            println!("not run: no IPv6 here");
            return;
        }
        let port = program.connect_to_itself(listen, connect, 4);
        program.say("c[0].setsockopt(6, 1, 1) or c[1].setsockopt(6, 3, 1)");
        program.say("[c[i].sendall(b'x' * 1000 * i) for i in range(4)], a[2].sendall(b'y' * 70)");
        // c[1] is corked: what it wrote stays until its timer fires or it is uncorked.
        program.say("c[1].setsockopt(6, 3, 0) or c[1].setsockopt(6, 3, 1)");
        let pid = program.pid();
        let fds: Vec<u64> = (0..4).map(|at| program.number(&format!("c[{at}].fileno()"))).collect();
        let still = |all: &BTreeMap<u64, Vec<String>>| -> Vec<Vec<String>> {
            let stays = |word: &&String| !word.starts_with("last");
            all.values().map(|words| words.iter().filter(stays).cloned().collect()).collect()
        };
        // A delayed ACK may still be pending, so the reading compared is one between two equal ones.
        let mut looks = (0..1000).filter_map(|_| {
            let before = ss(port)?;
            let listing = list(&of_pid(pid)).unwrap();
            (still(&before) == still(&ss(port)?)).then_some((before, listing))
        });
        if ss(port).is_none() {
            return;
        }
        let (theirs, listing) = looks.next().expect("it is idle in the end");
        assert_eq!((listing.sockets.len(), listing.vanished), (8, 0), "{listing:#?}");
        for socket in &listing.sockets {
            let clients_end = socket.accepted == Some(false);
            assert_eq!(socket.family, families[usize::from(!clients_end)]);
            assert_eq!(socket.source, Source::Descriptor);
            let at = fds.iter().position(|fd| *fd as i32 == socket.owners[0].fds[0]);
            assert_eq!(at.is_some(), clients_end, "{socket:#?}");
            assert_eq!(socket.nodelay, Some(at == Some(0)), "{socket:#?}");
            assert_eq!(socket.cork, Some(at == Some(1)), "{socket:#?}");
            assert_eq!(socket.info.receive_window_bytes.is_some(), socket.info.timeouts.is_some());
            let words = &theirs[&socket.inode];
            assert_as_ss_says(socket, words);
        }
    }
}

#[test]
fn every_owner_of_a_shared_socket_is_named() {
    let Some(mut program) = Program::start(&[]) else { return };
    program.connect_to_itself("127.0.0.1", "127.0.0.1", 1);
    let child = program.number(
        "(lambda pid: pid if pid else os.execvp('sleep', ['sleep', '1000']))(\
        [os.set_inheritable(c[0].fileno(), True), os.dup(c[0].fileno()), os.fork()][2])",
    ) as u32;
    let pid = program.pid();
    let comm = || std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
    while comm().trim_end() != "sleep" {
        std::thread::yield_now();
    }
    let listing = list(&of_pid(pid)).unwrap();
    let fd = program.number("c[0].fileno()") as i32;
    let shared: Vec<_> = listing.sockets.iter().filter(|socket| socket.accepted == Some(false)).collect();
    let owners: Vec<_> = shared[0].owners.iter().map(|owner| (owner.pid, owner.fds.len())).collect();
    // By process id, of which a child has the smaller one once the kernel has used them all.
    let mut expected = vec![(pid, 2), (child, 1)];
    expected.sort_unstable();
    assert_eq!((shared.len(), owners), (1, expected), "{shared:#?}");
    let owner = |pid: u32| shared[0].owners.iter().find(|owner| owner.pid == pid).unwrap();
    assert!(owner(pid).comm.starts_with("python"), "{shared:#?}");
    assert_eq!((owner(child).comm.as_str(), owner(child).fds.as_slice()), ("sleep", [fd].as_slice()));
    program.say(&format!("os.kill({child}, 9), os.waitpid({child}, 0)"));
}

#[test]
fn a_port_finds_its_processes_in_every_network_namespace() {
    let Some(mut here) = Program::start(&[]) else { return };
    let port = here.connect_to_itself("127.0.0.1", "127.0.0.1", 1);
    let Some(mut elsewhere) = Program::start(&["unshare", "-n"]) else { return };
    let mut up = Command::new("nsenter");
    up.args(["-n", "-t", &elsewhere.pid().to_string(), "ip", "link", "set", "lo", "up"]);
    if !up.status().is_ok_and(|status| status.success()) {
        println!("not run: a network namespace needs root, nsenter and ip");
        return;
    }
    let same_port = format!(
        "globals().update(l=socket.create_server(('127.0.0.1', {port}))) or \
         globals().update(c=socket.create_connection(('127.0.0.1', {port}))) or globals().update(a=l.accept()[0])"
    );
    elsewhere.say(&same_port);
    let (first, second) = (here.pid(), elsewhere.pid());
    let found = list(&Asked { port: Some(port), listening: true, ..Asked::default() }).unwrap();
    let of = |pid: u32| {
        found.sockets.iter().filter(move |socket| socket.owners.iter().any(|owner| owner.pid == pid))
    };
    assert_eq!((of(first).count(), of(second).count(), found.sockets.len()), (3, 3, 6), "{found:#?}");
    let listening = found.sockets.iter().filter(|socket| socket.state == State::Listen).count();
    assert_eq!(listening, 2);
    let namespaces = |pid| of(pid).map(|socket| socket.network_namespace.unwrap()).collect::<Vec<_>>();
    assert!(namespaces(first) != namespaces(second));
    assert!(
        found
            .sockets
            .iter()
            .all(|socket| socket.source == Source::Descriptor && socket.nodelay == Some(false))
    );
    // Sockets that a process brought from another namespace are not in the table of its own.
    let moved = here.say("__import__('ctypes').CDLL(None).unshare(0x40000000)");
    assert_eq!(moved, "0", "unshare(CLONE_NEWNET)");
    let moved = list(&of_pid(first)).unwrap();
    assert_eq!(moved.sockets.len(), 2, "{moved:#?}");
    assert!(
        moved.sockets.iter().all(|socket| socket.network_namespace.is_none() && socket.info.rtt_ns.is_some())
    );
}

#[test]
fn ten_thousand_sockets_are_listed_each_once() {
    let Some(mut program) = Program::start(&[]) else { return };
    let room = program.number("resource.getrlimit(resource.RLIMIT_NOFILE)[0]");
    let count = 5_000.min(room as usize / 2 - 20);
    if count < 5_000 {
        println!("not run in full: only {room} files may be open here");
    }
    program.connect_to_itself("127.0.0.1", "127.0.0.1", count);
    let begun = std::time::Instant::now();
    let listing = list(&of_pid(program.pid())).unwrap();
    println!("{} sockets listed in {:?}", listing.sockets.len(), begun.elapsed());
    let ends: std::collections::HashSet<(SocketAddr, SocketAddr)> =
        listing.sockets.iter().map(|socket| (socket.local, socket.peer.unwrap())).collect();
    assert_eq!((listing.sockets.len(), ends.len(), listing.vanished), (2 * count, 2 * count, 0));
    assert!(listing.sockets.iter().all(|socket| socket.source == Source::Descriptor));
}

#[test]
fn sockets_that_close_during_the_listing_are_counted() {
    let Some(mut program) = Program::start(&[]) else { return };
    program.connect_to_itself("127.0.0.1", "127.0.0.1", 300);
    let pid = program.pid();
    let looks =
        std::thread::spawn(move || -> Vec<_> { (0..20).map(|_| list(&of_pid(pid)).unwrap()).collect() });
    program.say("[c.pop().close() or a.pop().close() for _ in range(300)]");
    for listing in looks.join().unwrap() {
        assert!(listing.sockets.len() as u64 + listing.vanished <= 600, "{listing:?}");
        assert!(listing.sockets.iter().all(|socket| !socket.owners.is_empty()));
    }
    assert_eq!(list(&of_pid(pid)).unwrap().sockets, []);
}

#[test]
fn errors_name_the_problem() {
    let none = list(&of_pid(u32::MAX)).unwrap_err();
    assert!(matches!(none, SocketsError::NoProcess { pid: u32::MAX }), "{none}");
}
