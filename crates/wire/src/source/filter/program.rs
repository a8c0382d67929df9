//! Compiles conditions to instructions of classic BPF (Linux, Documentation/networking/filter.rst).

use super::expression::{End, Expression};
use std::net::IpAddr;

/// One instruction, in the layout of `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if the condition holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// Operand.
    pub k: u32,
}

/// Loopback packets pass the tap twice, outgoing and incoming; one of the two suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopbackOnce {
    /// The interface is not loopback.
    No,
    /// The interface is loopback: drop outgoing packets.
    All,
    /// Capturing on all interfaces; this is the index of loopback.
    Index(u32),
}

/// The interfaces to capture when listening on all, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Interfaces {
    /// All of them.
    #[default]
    All,
    /// Only these.
    Only(Vec<u32>),
    /// All but these.
    AllBut(Vec<u32>),
}

// Operation codes: class | size or operation | mode or source (include/uapi/linux/bpf_common.h).
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_X_HEADER_LENGTH: u16 = 0xb1;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

/// Loads relative to the network header (SKF_NET_OFF).
const NETWORK: u32 = -0x10_0000_i32 as u32;
/// Loads of kernel metadata about the packet (SKF_AD_OFF and its members).
const PROTOCOL: u32 = -0x1000_i32 as u32;
const PACKET_TYPE: u32 = PROTOCOL + 4;
const INTERFACE: u32 = PROTOCOL + 8;
/// `sll_pkttype` of a packet that this host sent.
const OUTGOING: u32 = 4;

const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
/// TCP, UDP, SCTP: protocols with ports.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// A position in the program that is not yet known.
#[derive(Clone, Copy)]
struct Label(usize);

#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    /// Instruction of each label.
    places: Vec<usize>,
    /// Jumps to patch: instruction, label.
    jumps: Vec<(usize, Label)>,
}

/// The program: the condition, then `return snap_bytes` or `return 0`.
pub(super) fn assemble(
    expression: Option<&Expression>,
    snap_bytes: u32,
    once: LoopbackOnce,
    interfaces: &Interfaces,
) -> Vec<Instruction> {
    let mut assembler = Assembler::default();
    let (keep, drop) = (assembler.label(), assembler.label());
    assembler.choose(interfaces, drop);
    assembler.skip_second_sight(once, drop);
    if let Some(expression) = expression {
        assembler.condition(expression, keep, drop);
    }
    assembler.place(keep);
    assembler.emit(RETURN, snap_bytes);
    assembler.place(drop);
    assembler.emit(RETURN, 0);
    assembler.finish()
}

impl Assembler {
    fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.places[label.0] = self.instructions.len();
    }

    fn emit(&mut self, code: u16, k: u32) {
        self.instructions.push(Instruction { code, jump_true: 0, jump_false: 0, k });
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.emit(JUMP, 0);
    }

    /// A test, then two long jumps: a conditional jump alone reaches only 255 instructions.
    fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) {
        self.instructions.push(Instruction { code, jump_true: 0, jump_false: 1, k });
        self.jump(yes);
        self.jump(no);
    }

    fn test(&mut self, load: u16, at: u32, equals: u32, yes: Label, no: Label) {
        self.emit(load, at);
        self.branch(JUMP_EQUAL, equals, yes, no);
    }

    /// Continues here if the test holds, and at `no` if it does not.
    fn require(&mut self, load: u16, at: u32, equals: u32, no: Label) {
        let here = self.label();
        self.test(load, at, equals, here, no);
        self.place(here);
    }

    fn choose(&mut self, interfaces: &Interfaces, drop: Label) {
        let (indices, is_listed, is_not) = match interfaces {
            Interfaces::All => return,
            Interfaces::Only(indices) => (indices, self.label(), drop),
            Interfaces::AllBut(indices) => (indices, drop, self.label()),
        };
        for index in indices {
            let next = self.label();
            self.test(LOAD_WORD, INTERFACE, *index, is_listed, next);
            self.place(next);
        }
        self.jump(is_not);
        match interfaces {
            Interfaces::Only(_) => self.place(is_listed),
            _ => self.place(is_not),
        }
    }

    fn skip_second_sight(&mut self, once: LoopbackOnce, drop: Label) {
        let go_on = self.label();
        match once {
            LoopbackOnce::No => {}
            LoopbackOnce::All => self.test(LOAD_BYTE, PACKET_TYPE, OUTGOING, drop, go_on),
            LoopbackOnce::Index(index) => {
                let loopback = self.label();
                self.test(LOAD_WORD, INTERFACE, index, loopback, go_on);
                self.place(loopback);
                self.test(LOAD_BYTE, PACKET_TYPE, OUTGOING, drop, go_on);
            }
        }
        self.place(go_on);
    }

    fn condition(&mut self, expression: &Expression, yes: Label, no: Label) {
        match expression {
            Expression::Version(4) => self.test(LOAD_HALF, PROTOCOL, ETHERTYPE_IPV4, yes, no),
            Expression::Version(_) => self.test(LOAD_HALF, PROTOCOL, ETHERTYPE_IPV6, yes, no),
            Expression::Protocol(number) => self.protocol(*number, yes, no),
            Expression::Net(end, address, bits) => self.net(*end, *address, *bits, yes, no),
            Expression::Ports(end, carrier, first, last) => {
                self.ports(*end, *carrier, (*first, *last), yes, no)
            }
            Expression::Not(inner) => self.condition(inner, no, yes),
            Expression::And(left, right) => {
                let next = self.label();
                self.condition(left, next, no);
                self.place(next);
                self.condition(right, yes, no);
            }
            Expression::Or(left, right) => {
                let next = self.label();
                self.condition(left, yes, next);
                self.place(next);
                self.condition(right, yes, no);
            }
        }
    }

    fn protocol(&mut self, number: u8, yes: Label, no: Label) {
        let (six, four, fragment) = (self.label(), self.label(), self.label());
        self.test(LOAD_HALF, PROTOCOL, ETHERTYPE_IPV4, four, six);
        self.place(four);
        self.test(LOAD_BYTE, NETWORK + 9, number as u32, yes, no);
        self.place(six);
        self.require(LOAD_HALF, PROTOCOL, ETHERTYPE_IPV6, no);
        self.test(LOAD_BYTE, NETWORK + 6, number as u32, yes, fragment);
        self.place(fragment);
        // A fragment header (44) is followed by the protocol of the datagram.
        self.require(LOAD_BYTE, NETWORK + 6, 44, no);
        self.test(LOAD_BYTE, NETWORK + 40, number as u32, yes, no);
    }

    fn net(&mut self, end: End, address: IpAddr, bits: u8, yes: Label, no: Label) {
        let (kind, source, words) = match address {
            IpAddr::V4(address) => (ETHERTYPE_IPV4, 12, vec![u32::from(address)]),
            IpAddr::V6(address) => {
                let all = u128::from(address);
                (ETHERTYPE_IPV6, 8, (0..4).rev().map(|word| (all >> (32 * word)) as u32).collect())
            }
        };
        self.require(LOAD_HALF, PROTOCOL, kind, no);
        let length = words.len() as u32 * 4;
        let other = self.label();
        match end {
            End::Source => self.prefix(source, &words, bits, yes, no),
            End::Destination => self.prefix(source + length, &words, bits, yes, no),
            End::Either => {
                self.prefix(source, &words, bits, yes, other);
                self.place(other);
                self.prefix(source + length, &words, bits, yes, no);
            }
        }
    }

    fn prefix(&mut self, at: u32, words: &[u32], bits: u8, yes: Label, no: Label) {
        for (n, word) in words.iter().enumerate() {
            let left = (bits as u32).saturating_sub(32 * n as u32).min(32);
            if left == 0 {
                break;
            }
            let mask = u32::MAX << (32 - left);
            let same = self.label();
            self.emit(LOAD_WORD, NETWORK + at + 4 * n as u32);
            self.emit(AND, mask);
            self.branch(JUMP_EQUAL, word & mask, same, no);
            self.place(same);
        }
        self.jump(yes);
    }

    fn ports(&mut self, end: End, carrier: Option<u8>, ports: (u16, u16), yes: Label, no: Label) {
        let (four, six) = (self.label(), self.label());
        self.test(LOAD_HALF, PROTOCOL, ETHERTYPE_IPV4, four, six);

        self.place(four);
        self.carrier(NETWORK + 9, carrier, no);
        // Only the first fragment has ports.
        let first = self.label();
        self.emit(LOAD_HALF, NETWORK + 6);
        self.branch(JUMP_SET, 0x1fff, no, first);
        self.place(first);
        self.emit(LOAD_X_HEADER_LENGTH, NETWORK);
        self.port_pair(LOAD_HALF_INDEXED, NETWORK, end, ports, yes, no);

        self.place(six);
        self.require(LOAD_HALF, PROTOCOL, ETHERTYPE_IPV6, no);
        self.carrier(NETWORK + 6, carrier, no);
        self.port_pair(LOAD_HALF, NETWORK + 40, end, ports, yes, no);
    }

    fn carrier(&mut self, at: u32, carrier: Option<u8>, no: Label) {
        let found = self.label();
        self.emit(LOAD_BYTE, at);
        let wanted = carrier.map(|number| vec![number]).unwrap_or_else(|| WITH_PORTS.to_vec());
        for number in wanted {
            let next = self.label();
            self.branch(JUMP_EQUAL, number as u32, found, next);
            self.place(next);
        }
        self.jump(no);
        self.place(found);
    }

    fn port_pair(&mut self, load: u16, at: u32, end: End, ports: (u16, u16), yes: Label, no: Label) {
        let other = self.label();
        match end {
            End::Source => self.port(load, at, ports, yes, no),
            End::Destination => self.port(load, at + 2, ports, yes, no),
            End::Either => {
                self.port(load, at, ports, yes, other);
                self.place(other);
                self.port(load, at + 2, ports, yes, no);
            }
        }
    }

    fn port(&mut self, load: u16, at: u32, (first, last): (u16, u16), yes: Label, no: Label) {
        self.emit(load, at);
        if first == last {
            return self.branch(JUMP_EQUAL, first as u32, yes, no);
        }
        let enough = self.label();
        self.branch(JUMP_GREATER_OR_EQUAL, first as u32, enough, no);
        self.place(enough);
        self.branch(JUMP_GREATER, last as u32, no, yes);
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            // All labels are ahead, because expressions are trees.
            self.instructions[at].k = (self.places[label.0] - at - 1) as u32;
        }
        self.instructions
    }
}
