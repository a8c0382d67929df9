//! Any text as the files of a machine: no panic, and every interrupt and every load belongs to CPUs that are
//! online.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_isolate::topology::Topology;
use spangap_machine::{Host, Kept};

fuzz_target!(|text: &str| {
    let Ok(kept) = Kept::parse(text) else { return };
    let topology = Topology::read(&Host::kept(kept));
    assert_eq!(topology.load.len(), topology.cpus.len());
    for irq in &topology.irqs {
        assert_eq!(irq.counts.len(), topology.cpus.len());
    }
    assert!(serde_json::to_string(&topology).is_ok());
});
