//! One suite of checks, run over every stack: whether its programs follow `clients/CONTRACT.md`. A stack
//! whose program was not built prints `not run: WHY`.

mod calls;
mod channels;
mod failures;
mod program;
mod records;
mod refusals;
mod spans;

use spangap_bench::contract::Stack;

/// The checks of one stack, each as a test of its own.
macro_rules! stacks {
    ($($name:ident: $stack:ident),+ $(,)?) => { $(mod $name {
        const STACK: super::Stack = super::Stack::$stack;

        #[test]
        fn wrong_flags_are_refused_with_words() {
            super::refusals::wrong_flags(STACK);
        }
        #[test]
        fn what_the_stack_cannot_do_is_refused() {
            super::refusals::impossible(STACK);
        }
        #[test]
        fn a_closed_loop_makes_exactly_the_calls_asked_for() {
            super::calls::closed_loop(STACK);
        }
        #[test]
        fn an_open_loop_follows_its_schedule() {
            super::calls::open_loop(STACK);
        }
        #[test]
        fn an_open_loop_skips_what_is_too_much() {
            super::calls::skipping(STACK);
        }
        #[test]
        fn sizes_and_think_times_are_honoured() {
            super::calls::sizes_and_think_times(STACK);
        }
        #[test]
        fn channels_have_the_connections_that_their_mode_promises() {
            super::channels::connections(STACK);
        }
        #[test]
        fn a_connection_for_each_call_is_opened_and_closed() {
            super::channels::per_call(STACK);
        }
        #[test]
        fn the_limit_of_streams_is_respected() {
            super::channels::stream_limit(STACK);
        }
        #[test]
        fn calls_over_their_timeout_are_counted() {
            super::failures::timeouts(STACK);
        }
        #[test]
        fn a_target_that_dies_is_counted_and_found_again() {
            super::failures::dead_target(STACK);
        }
        #[test]
        fn nobody_there_is_told() {
            super::failures::unreachable(STACK);
        }
        #[test]
        fn the_end_of_the_life_line_ends_the_program() {
            super::failures::life_line(STACK);
        }
        #[test]
        fn every_call_has_its_record_and_its_server_span() {
            super::records::all(STACK);
        }
        #[test]
        fn slow_calls_alone_have_records() {
            super::records::slow(STACK);
        }
        #[test]
        fn records_that_nobody_reads_stall_nothing() {
            super::records::unread(STACK);
        }
    })+ };
}

stacks!(raw: Raw, rust: Rust, cpp_sync: CppSync, cpp_async: CppAsync, cpp_callback: CppCallback, go: Go);
