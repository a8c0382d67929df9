//! The protocol between agents and the meter: the messages of `proto/`, and slices cut into pieces and
//! reassembled.
//!
//! Both ends distrust each other: the decompressed size of a piece is bounded, as is that of a slice, and a
//! file has one of the names in [`slice::FILES`].

#![warn(missing_docs)]

pub mod slice;

/// The messages and the service, compiled from `proto/`.
pub mod v1 {
    // Documented in the .proto file.
    #![allow(missing_docs)]
    tonic::include_proto!("spangap.fleet.v1");
}

/// Version of the protocol that this program speaks.
pub const PROTOCOL: u32 = 1;
