use super::*;
use crate::journal::{Entry, IrqName};
use crate::topology::{Irqbalance, Kubelet, Tuned};
use crate::verify::effect::tests::made_topology;
use proptest::prelude::*;
use spangap_model::Cpus;

fn standing(place: Place, state: State) -> Standing {
    let irq = match &place {
        Place::File { path } if path.starts_with("/proc/irq/") => {
            Some(IrqName { name: "eth0-0".into(), interface: Some("eth0".into()) })
        }
        _ => None,
    };
    Standing { entry: Entry { place, old: Some("0-3".into()), new: "2".into(), irq }, state }
}

fn irq(number: u32, state: State) -> Standing {
    standing(Place::file(format!("/proc/irq/{number}/smp_affinity_list")), state)
}

fn changed(found: &str) -> State {
    State::Changed { found: found.into() }
}

fn group(path: &str, file: &str, found: &str) -> Standing {
    standing(Place::file(format!("/sys/fs/cgroup{path}/{file}")), changed(found))
}

/// Originator of the first drift.
fn who(standings: &[Standing], now: &Topology) -> (Originator, String) {
    let found = drift(standings, now);
    (found[0].who, found[0].words())
}

fn irqbalance(banned: Option<Vec<u32>>) -> Option<Irqbalance> {
    Some(Irqbalance { pid: 812, banned, unit: None })
}

#[test]
fn stray_interrupt() {
    let mut now = made_topology(4);
    let moved = [irq(40, changed("0-3")), irq(41, State::Ours)];
    assert_eq!(who(&moved, &now).0, Originator::Somebody);
    now.tuned = Some(Tuned { pid: 900, profile: Some("throughput-performance".into()) });
    assert_eq!(who(&moved, &now).0, Originator::Tuned);
    now.irqbalance = irqbalance(Some(vec![40, 41]));
    assert_eq!(who(&moved, &now).0, Originator::Tuned, "irqbalance leaves it alone");
    now.irqbalance = irqbalance(Some(vec![41]));
    let (by, words) = who(&moved, &now);
    assert_eq!(by, Originator::Irqbalance);
    assert_eq!(
        words,
        "/proc/irq/40/smp_affinity_list is \"0-3\", was set to \"2\": probably irqbalance, which runs (process 812) and \
         does not leave IRQ 40 alone"
    );
    now.irqbalance = irqbalance(None);
    assert!(who(&moved, &now).1.contains("does not tell"));
}

#[test]
fn driver_reset_is_recognised() {
    let mut now = made_topology(4);
    now.interfaces[0].driver = Some("virtio_net".into());
    let all = [irq(40, changed("0-3")), irq(41, State::Before)];
    let (by, words) = who(&all, &now);
    assert_eq!(by, Originator::Driver);
    assert!(
        words.contains("probably the driver, all interrupts of eth0 (virtio_net) were reassigned"),
        "{words}"
    );
    assert_eq!(who(&all[..1], &now).0, Originator::Somebody, "of one nothing follows");
    let gone = drift(&[irq(40, State::Gone)], &now);
    assert_eq!((gone[0].who, gone[0].found.as_deref()), (Originator::Driver, None));
    let queues = standing(Place::Queues { interface: "eth0".into() }, changed("1"));
    assert_eq!(who(std::slice::from_ref(&queues), &now).0, Originator::Somebody);
    assert_eq!(who(&[queues, irq(40, State::Gone), irq(41, State::Gone)], &now).0, Originator::Driver);
    let rps = |interface: &str, state| {
        standing(Place::file(format!("/sys/class/net/{interface}/queues/rx-1/rps_cpus")), state)
    };
    assert_eq!(who(&[rps("eth0", State::Gone)], &now).0, Originator::Driver);
    assert!(who(&[rps("veth9", changed("0"))], &now).1.contains("veth9 no longer exists"));
}

#[test]
fn sets_that_were_written_again() {
    let mut now = made_topology(4);
    let slice = group("/system.slice", "cpuset.cpus", "0-3");
    assert!(who(&[slice], &now).1.contains("probably systemd, daemon-reload"));
    let container = group("/kubepods.slice/pod1.slice/cri-a.scope", "cpuset.cpus", "0-3");
    now.kubelet = Some(Kubelet {
        policy: "static".into(),
        shared: Cpus::parse_list("0-3").unwrap(),
        exclusive: Vec::new(),
        reserved: None,
    });
    let (by, words) = who(std::slice::from_ref(&container), &now);
    assert_eq!(by, Originator::Kubelet);
    assert!(words.contains("(policy static, shared pool 0-3)"), "{words}");
    assert_eq!(drift(&[Standing { state: State::Gone, ..container }], &now), [], "a container that ended");
    assert_eq!(who(&[group("/docker", "cpuset.cpus", "0-3")], &now).0, Originator::Somebody);
    let partition = group(
        "/spangap-net",
        "cpuset.cpus.partition",
        "isolated invalid (Cpu list in cpuset.cpus not exclusive)",
    );
    let invalid = &drift(&[partition], &now)[0];
    assert!(invalid.certain && invalid.who == Originator::Kernel, "{invalid:?}");
    assert!(invalid.words().ends_with("the kernel, which says: Cpu list in cpuset.cpus not exclusive"));
    let ours = standing(Place::Group { path: "/sys/fs/cgroup/spangap-net".into() }, State::Gone);
    assert!(who(&[ours], &now).1.ends_with("/spangap-net was removed"));
}

#[test]
fn irqbalance_started_anew() {
    let mut now = made_topology(4);
    let banned = standing(Place::BannedIrqs, changed(""));
    assert_eq!(who(std::slice::from_ref(&banned), &now).0, Originator::Somebody);
    now.irqbalance = irqbalance(Some(Vec::new()));
    assert_eq!(who(&[banned], &now).0, Originator::Irqbalance);
    let service = standing(Place::Service { name: "irqbalance.service".into() }, changed("running"));
    assert!(who(&[service], &now).1.contains("systemctl mask irqbalance.service"));
}

#[test]
fn held_and_ended_values_are_not_drift() {
    let now = made_topology(4);
    let thread = Place::Affinity { tid: 7, start_ticks: 1, comm: "server".into() };
    let unknown = State::Unknown { why: "permission denied".into() };
    let fine = [irq(40, State::Ours), standing(thread.clone(), State::Gone), irq(41, unknown)];
    assert_eq!(drift(&fine, &now), []);
    assert_eq!(drift(&[standing(thread, changed("0-3"))], &now)[0].who_words(), "somebody");
}

proptest! {
    #[test]
    fn no_path_panics(path in "(/[a-z0-9.*-]{0,9}){0,6}", found in "\\PC{0,20}") {
        let now = made_topology(4);
        let drifts = drift(&[standing(Place::file(path), changed(&found))], &now);
        prop_assert_eq!(drifts.len(), 1);
        prop_assert!(!drifts[0].words().is_empty());
    }
}
