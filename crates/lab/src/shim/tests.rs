//! The library in a real program: this one, started again with the name of a test as its first argument.

use super::*;
use proptest::prelude::*;
use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

/// Where the started program connects or listens; set only for it.
const ADDRESS: &str = "SHIM_TEST_ADDRESS";
const MESSAGE: usize = 1000;

/// An address unique to this process, with the port that the shim acts on.
fn address(number: u8) -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{high}.{low}:{PORT}", 200 + number)
}

/// This program as `test`, with the shim loaded.
fn started(test: &str, shim: &Shim, address: &str, folder: &Path, meant: &str) -> Command {
    let library = folder.join("shim.so");
    fs::write(&library, LIBRARY).expect("a folder of this test");
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture"]).env(ADDRESS, address);
    command.env("LD_PRELOAD", library).env("SPANGAP_SHIM_LOG", folder.join("log"));
    for (name, value) in shim.settings() {
        command.env(format!("SPANGAP_SHIM_{name}"), value);
    }
    command.env("SPANGAP_SHIM_IN", meant);
    command
}

fn sum(pauses: &[Active]) -> Duration {
    Duration::from_nanos(pauses.iter().map(|pause| pause.to_unix_ns - pause.from_unix_ns).sum())
}

/// Echoes each message of one client; returns how many there were.
fn echo(listener: &TcpListener) -> usize {
    let (mut client, _) = listener.accept().expect("a client");
    let mut message = vec![0; MESSAGE];
    let mut messages = 0;
    while client.read_exact(&mut message).is_ok() {
        client.write_all(&message).expect("the client reads");
        messages += 1;
    }
    messages
}

const AS_CLIENT: &str = "shim::tests::as_a_client";
const MESSAGES: usize = 6;

/// Not a test by itself: the program that [`started`] starts.
#[test]
fn as_a_client() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let mut server = TcpStream::connect(address).expect("the test listens");
    for number in 0..MESSAGES {
        let message = vec![number as u8; MESSAGE];
        server.write_all(&message).expect("the test reads");
        // As a reader that first waits for readiness: a read that finds nothing cannot be late.
        server.peek(&mut [0]).expect("the test answers");
        let mut answer = vec![0; MESSAGE];
        server.read_exact(&mut answer).expect("the test answers");
        assert_eq!(answer, message);
    }
}

fn called(shim: &Shim, number: u8, meant: &str) -> Result<Vec<Active>, LabError> {
    let folder = tempfile::tempdir().expect("a folder");
    let address = address(number);
    let listener = TcpListener::bind(&address).expect("an address of this test's own");
    let mut client =
        started(AS_CLIENT, shim, &address, folder.path(), meant).spawn().expect("this program starts");
    assert_eq!(echo(&listener), MESSAGES);
    assert!(client.wait().expect("it ends").success());
    shim.read(&folder.path().join("log"))
}

#[test]
fn reads_come_late_by_number() {
    let pause = Duration::from_millis(2);
    let shim = Shim { late: Some(LateRead { pause, every: LateReads::Reads(2) }), ..Shim::at(Side::Client) };
    let pauses = called(&shim, 0, AS_CLIENT).expect("it is in there");
    // A message may arrive in parts, each of them a read.
    assert!(pauses.len() >= MESSAGES / 2, "{pauses:?}");
    assert!(sum(&pauses) >= pause * pauses.len() as u32, "{pauses:?}");
}

#[test]
fn reads_come_late_once_a_period() {
    let every = LateReads::Period(Duration::from_secs(3600));
    let shim =
        Shim { late: Some(LateRead { pause: Duration::from_millis(1), every }), ..Shim::at(Side::Client) };
    assert_eq!(called(&shim, 1, AS_CLIENT).expect("it is in there").len(), 1);
}

#[test]
fn read_cost_is_proportional_to_bytes() {
    let cost = Cost { time: Duration::from_millis(1), bytes: 500 };
    let shim = Shim { cost: Some(cost), receive_buffer: Some(8192), ..Shim::at(Side::Client) };
    let pauses = called(&shim, 2, AS_CLIENT).expect("it is in there");
    assert!(sum(&pauses) >= cost.time * (MESSAGES * MESSAGE / 500) as u32, "{pauses:?}");
}

#[test]
fn other_programs_are_left_alone_and_that_is_noticed() {
    let cost = Cost { time: Duration::from_secs(3600), bytes: 1 };
    let shim = Shim { cost: Some(cost), ..Shim::at(Side::Client) };
    let error = called(&shim, 3, "another").expect_err("it is not in there");
    assert!(matches!(error, LabError::Unavailable { .. }), "{error}");
}

const AS_SERVER: &str = "shim::tests::as_a_server";

/// Not a test by itself: the program that [`started`] starts.
#[test]
fn as_a_server() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let listener = TcpListener::bind(address).expect("an address of the test's own");
    echo(&listener);
    echo(&listener);
}

#[test]
fn a_server_accepts_late_from_a_short_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = address(4);
    let shim = Shim {
        accept_pause: Some(Duration::from_millis(1)),
        backlog: Some(3),
        receive_buffer: Some(8192),
        ..Shim::at(Side::Server)
    };
    let mut server =
        started(AS_SERVER, &shim, &address, folder.path(), AS_SERVER).spawn().expect("it starts");
    for _ in 0..2 {
        let mut connection = loop {
            if let Ok(connection) = TcpStream::connect(&address) {
                break connection;
            }
            assert!(server.try_wait().expect("its state").is_none(), "it has ended");
            std::thread::yield_now();
        };
        connection.write_all(&[7; MESSAGE]).expect("it reads");
        connection.read_exact(&mut [0; MESSAGE]).expect("it answers");
    }
    assert!(server.wait().expect("it ends").success());
    let log = log::parse(&fs::read_to_string(folder.path().join("log")).expect("a log")).expect("the shim's");
    // A connection may arrive only after accept has begun to wait for it.
    assert!(log.pauses.len() <= 2, "{log:?}");
    assert_eq!((log.loaded, &log.backlogs[..], &log.buffers[..]), (1, &[3][..], &[16384][..]));
}

#[test]
fn logs_are_read_line_by_line() {
    let text = "loaded 17\nbuffer 4608\nbacklog 1\npause 5 9\nfull\npause 10";
    let log = log::parse(text).expect("all of the shim's");
    assert_eq!((log.loaded, log.buffers, log.backlogs, log.full), (1, vec![4608], vec![1], true));
    assert_eq!(log.pauses, [Active { from_unix_ns: 5, to_unix_ns: 9 }]);
    let error = log::parse("loaded 1\npause 5\n").expect_err("an end is missing");
    assert!(error.starts_with("line 2: "), "{error}");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "((loaded|pause|full|) ?[0-9 ]{0,30}\n?){0,9}|\\PC*") {
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).count();
        if let Ok(log) = log::parse(&text) {
            let told = log.loaded as usize + log.pauses.len() + log.buffers.len() + log.backlogs.len();
            prop_assert!(told <= whole);
        }
    }
}

#[test]
fn every_variable_is_explained() {
    let words = settings_in_words();
    let all = Shim {
        cost: Some(Cost { time: Duration::from_secs(1), bytes: 1 }),
        late: Some(LateRead { pause: Duration::from_secs(1), every: LateReads::Reads(1) }),
        receive_buffer: Some(1),
        backlog: Some(1),
        accept_pause: Some(Duration::from_secs(1)),
        ..Shim::at(Side::Client)
    };
    for (name, _) in all.settings() {
        assert!(words.contains(&format!("SPANGAP_SHIM_{name} ")), "{name} is not in {words}");
    }
}
