//! A door from a network namespace to the meter outside: an address inside whose connections are forwarded. It
//! creates no device and no route, and disappears with this process.

use anyhow::Context;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;

/// Where agents and exporters find the meter, in each namespace.
pub const INSIDE: &str = "127.0.0.1:4317";

/// Opens a door in `namespace` to the meter at `outside`. It ends with the process.
pub fn open(namespace: &str, outside: SocketAddr) -> anyhow::Result<()> {
    let listener = listen_in(namespace)?;
    let serve = move || {
        for stream in listener.incoming() {
            let Ok(inside) = stream else { continue };
            let Ok(outside) = TcpStream::connect(outside) else { continue };
            // Small writes go on as they come.
            let _ = (inside.set_nodelay(true), outside.set_nodelay(true));
            let (Ok(inside_too), Ok(outside_too)) = (inside.try_clone(), outside.try_clone()) else {
                continue;
            };
            for (from, to) in [(inside, outside_too), (outside, inside_too)] {
                let pass = move || pass_on(from, to);
                // Without a thread the connection ends, and its owner comes again.
                let _ = thread::Builder::new().name("door".into()).spawn(pass);
            }
        }
    };
    thread::Builder::new().name("door".into()).spawn(serve).context("cannot start a thread")?;
    Ok(())
}

/// A socket belongs to the namespace of the thread that makes it, for good; that thread ends here.
fn listen_in(namespace: &str) -> anyhow::Result<TcpListener> {
    let path = format!("/run/netns/{namespace}");
    let made = thread::spawn(move || -> io::Result<TcpListener> {
        let space = File::open(path)?;
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
        TcpListener::bind(INSIDE)
    });
    let made = made.join().map_err(|_| anyhow::anyhow!("the thread that listens in {namespace} panicked"))?;
    made.with_context(|| format!("cannot listen on {INSIDE} in the network namespace {namespace}"))
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    // However it ends, the other end hears of it.
    let _ = io::copy(&mut from, &mut to);
    let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
}
