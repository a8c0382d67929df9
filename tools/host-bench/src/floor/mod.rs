//! The floor: empty programs at the tracepoints of the probes, until this process ends.

use crate::BenchError;
use libbpf_rs::ObjectBuilder;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use std::io::Write;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/empty.o"));
/// Attaches at every tracepoint of the probes.
pub const EVERYWHERE: &str = "all";

/// Attaches an empty program at `tracepoint`, or [`EVERYWHERE`] that this kernel has one, says so, and stays until it is killed.
pub fn hold(tracepoint: &str) -> Result<(), BenchError> {
    let failed = |error: libbpf_rs::Error| BenchError::Start {
        program: format!("an empty program at {tracepoint}"),
        error: std::io::Error::other(format!("{error:#}")),
    };
    let kernel = Btf::from_vmlinux().map_err(failed)?;
    let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(failed)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let exists = kernel.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some();
        program.set_autoload(exists && (tracepoint == EVERYWHERE || tracepoint == name));
    }
    let object = open.load().map_err(failed)?;
    let programs = object.progs_mut().filter(|program| program.autoload());
    let links: Vec<_> = programs.map(|program| program.attach()).collect::<Result<_, _>>().map_err(failed)?;
    if links.is_empty() {
        return Err(BenchError::Output {
            program: format!("an empty program at {tracepoint}"),
            expected: "a tracepoint of the probes that this kernel has",
            found: "none".into(),
        });
    }
    println!("{} empty programs are attached", links.len());
    // Whoever started this waits for that line.
    let _told = std::io::stdout().flush();
    loop {
        std::thread::park();
    }
}
