//! Tank and target: the RPC ping-pong pair.
