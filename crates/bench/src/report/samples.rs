//! Sample runs of every shape, for tests.

use super::*;

/// A closed-loop run with these latencies.
pub(crate) fn run(stack: Stack, channels: Channels, inflight: u32, repeat: u32, latencies: &[u64]) -> Run {
    let mut distribution = Distribution::default();
    latencies.iter().for_each(|ns| distribution.record(*ns));
    let ok = latencies.len() as u64;
    Run {
        asked: Asked {
            target: "127.0.0.1:50051".into(),
            stack,
            call: Call::Unary,
            method: None,
            channels,
            inflight: Some(inflight),
            rate_per_s: None,
            request_bytes: 0,
            response_bytes: None,
            think_ns: None,
            nodelay: Nodelay::Default,
            split_writes: false,
            attempts: 1,
            threads: 2,
            cpus: None,
            trace: false,
        },
        repeat,
        library: "gRPC C++ 1.51.1".into(),
        target_stack: Some("go".into()),
        target_library: Some("grpc-go 1.70.0".into()),
        start_unix_ns: Some(1_763_700_000_000_000_000),
        duration_s: 10.0,
        warmup_s: 1.0,
        scheduled: ok,
        calls: ok,
        ok,
        errors: BTreeMap::new(),
        error_reasons: BTreeMap::new(),
        skipped_overload: 0,
        warmup_errors: 0,
        throughput_per_s: ok as f64 / 10.0,
        latency: distribution.quantiles(),
        latency_from_send: distribution.quantiles(),
        lateness: None,
        spectrum: spectrum::spectrum(&distribution),
        spectrum_from_send: spectrum::spectrum(&distribution),
        seconds: Vec::new(),
        channels_made: channels.count(inflight),
        connections: Some(u64::from(channels.count(inflight))),
        sockets: None,
        streams: None,
        slow_over_ns: 20_000_000,
        slow: 0,
        cpu_client_s: 0.04 * ok as f64 / 1e3,
        cpu_target_s: Some(0.02 * ok as f64 / 1e3),
        context_switches: 2 * ok,
        context_switches_target: Some(ok),
        floor: None,
        records_dropped: 0,
        client_error: None,
        warnings: Vec::new(),
    }
}

/// The same as an open loop.
pub(crate) fn open(mut run: Run, rate_per_s: f64) -> Run {
    run.asked.inflight = None;
    run.asked.rate_per_s = Some(rate_per_s);
    run.lateness = Some(run.latency);
    run
}

/// A report of these runs, on a typical machine.
pub(crate) fn report(runs: Vec<Run>) -> TankReport {
    let mut report = TankReport {
        evidence: Default::default(),
        runs,
        verdict: String::new(),
        findings: Vec::new(),
        noise: Noise {
            clock_read_ns: 25,
            clock_step_ns: 1,
            cpus: 2,
            cannot_claim: vec![
                "latency differences below 25 us: pauses of that length are this machine's own".into(),
            ],
            ..Noise::default()
        },
        spans: None,
        slow_log: None,
        not_run: vec![NotRun { what: "stack go".into(), why: "no spangap-go was found".into() }],
        warnings: Vec::new(),
    };
    report.conclude();
    report
}
